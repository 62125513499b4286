"""The names of sections of an AdmissionPolicy, apart from their values, which take long to import."""

INHERITED = ("ordering", "backfill", "preemption", "placement", "estimates")
"""The sections that are inherited from `spec.base`, by their names in the API; aliases are as well."""
