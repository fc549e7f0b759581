"""The policy kinds, one in each folder of this package.

The ``rule.py`` of a folder defines ``KIND``, a `PolicyKind`: the name, the pydantic model of ``spec``, and the function
that compiles a spec to a rule. Rules are pure: no I/O, no clock, no globals. They emit violations and change Pods
through an editor. The engine handles enforcement, exemptions, break-glass, and unknown state.

==================  ====================================================================================
``rule.py``         the rule; its docstring lists the intent, fields read and written, findings, and sources
``spec.py``         the model of the policy's ``spec``
``defaults.yaml``   the defaults of long fields
``findings.yaml``   the text of each finding, with an example that fails and the fixed example
``cases.yaml``      examples that pass and fail, for the tests; not shipped
``example.yaml``    the policy that the kind's page and ``spotgate new`` show
``findings.py``     the wording of violations, if there are many
==================  ====================================================================================
"""
