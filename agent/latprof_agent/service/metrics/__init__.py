"""Totals as Prometheus reads them: families, and the formats they are written in."""
