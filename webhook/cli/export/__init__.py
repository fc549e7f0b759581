"""Exports for Kubernetes: webhook configurations, ValidatingAdmissionPolicies and schemas."""
