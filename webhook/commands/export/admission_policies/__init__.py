"""Export policies as ValidatingAdmissionPolicies, which hold while the webhook is down."""
