"""Definitions: the CustomResourceDefinitions that Berth serves, and conversion from Kueue's v1beta1.

Modules, in reading order:

    crds                 the definitions, generated from `api.models`
    structural_schema    a pydantic model as a structural schema
    bounds               a bound on every list, map and text that has none of its own
    conversion           manifests of v1beta1 in v1beta2

The models are the only source of the schemas: `deploy/crds` is generated and compared in the tests. No
conversion webhook is needed, so a cluster can read its own objects while Berth is down.
"""
