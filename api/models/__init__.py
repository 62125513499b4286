"""pydantic models of the objects Berth serves: Kueue's kinds and AdmissionPolicy.

They are used at the edges, where objects come from people: the CRDs are generated from them and manifests are
validated with them. The hot path decodes objects with the structs of api.objects and never uses these models.
"""
