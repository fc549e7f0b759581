"""Serve a certificate: from files, or from a Secret that spotgate manages."""
