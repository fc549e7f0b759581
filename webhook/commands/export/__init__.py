"""Export policies for Kubernetes: as webhook configurations, and as native admission policies."""
