"""Run folders of any size -> totals that merge, on one machine or a cluster."""
