"""Lines through delays: D = aS + b, its rivals, its verdict; trains of messages."""
