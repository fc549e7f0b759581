"""Why each policy acted on an object, and what a reclaim does to its Pods."""
