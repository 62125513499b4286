"""Apply: patches, server-side apply and field ownership in the embedded API server.

Modules, in reading order:

    schema            what a field is, whether a built-in kind or a CRD describes it
    builtin_types     the types of built-in kinds
    structural        the types of custom kinds: defaults, pruning, validation
    typed             compare, merge and cut objects along their type
    field_sets        sets of field paths
    managed_fields    which manager owns which field
    patches           merge patch, JSON patch and strategic merge patch
    errors            refusals in the words and codes of the real server

Validation of custom kinds is written here (`structural`) and not taken from openapi-schema-validator. A
refusal has to be the real server's list of field errors word for word, which that library does not give.
JSON patches are applied by the library jsonpatch (50 us against 20 us for a patch by hand): its time
does not matter here.
"""
