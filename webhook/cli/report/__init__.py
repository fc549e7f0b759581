"""The report of ``check``: its model, how it is built from judgements, where it goes, and helpers of its formats."""
