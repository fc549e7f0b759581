"""The types that rules, policies, and capacity share: the admission review, the decision, and the patch."""
