"""What is exported to Kubernetes: webhook configurations and ValidatingAdmissionPolicies."""
