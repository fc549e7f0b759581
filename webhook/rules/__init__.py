"""Judge objects by policy kinds: one folder each, found by looking into this package.

Its ``rule.py`` has ``KIND``, a `PolicyKind`: its name, the pydantic model of its ``spec``, and how a spec is compiled
into a rule. Rules are pure: no I/O, no clock, no globals. They emit bare violations and change Pods through an editor;
enforcement, exemptions, break-glass and what happens to the unknown are the engine's.

==================  ====================================================================================
``rule.py``         the rule; its first lines say intent, what it reads and writes, what it finds, sources
``spec.py``         the model of its policies' ``spec``
``lint.py``         probable mistakes in a valid ``spec``, if the kind looks for any
``findings.yaml``   what each finding means, with an example that fails and the same one fixed
``cases.yaml``      examples that pass and fail, which tests run; not shipped
``example.yaml``    the policy that the kind's page and ``spotgate new`` show
``findings.py``     how violations are put into words, where there are many
==================  ====================================================================================
"""
