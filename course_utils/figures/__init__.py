"""Every picture of the course."""
