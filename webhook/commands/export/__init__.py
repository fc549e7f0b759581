"""Export policies for Kubernetes: as webhook configurations, and as Kubernetes' own admission policies."""
