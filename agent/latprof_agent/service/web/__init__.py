"""What the agent answers over HTTP: metrics, its health, a page of its state."""
