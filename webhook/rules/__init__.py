"""Policy kinds: one module each, found by looking into this package.

A module of a policy kind defines ``KIND``, a `PolicyKind`: its name, the pydantic model of its ``spec``, and how a spec
is compiled into a rule. Rules are pure: no I/O, no clock, no globals. They emit bare violations and change Pods through
an editor; enforcement, exemptions, break-glass and what happens to the unknown are the engine's.
"""
