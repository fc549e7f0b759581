"""Export policies as ValidatingAdmissionPolicies, which also apply while the webhook is down."""
