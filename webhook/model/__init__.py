"""The admission review, the decision on it, and the patch: what rules, policies, and capacity share."""
