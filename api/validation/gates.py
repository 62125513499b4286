"""The external gates that keep a Job pending: annotation kueue.x-k8s.io/admission-gated-by."""

from collections.abc import Iterator, Mapping

from api import keys
from api.parsing.faults import FieldError
from api.validation.names import duplicates, is_label_key

_MOST_CHARACTERS = 63


def gate_errors(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield a fault for each invalid or duplicate gate. The annotation lists gates separated by commas."""
    text = annotations.get(keys.ADMISSION_GATED_BY)
    if text is None:
        return
    path = f"metadata.annotations[{keys.ADMISSION_GATED_BY}]"
    gates = text.split(",")
    for gate in gates:
        if "/" not in gate or not is_label_key(gate):
            rule = "a gate needs a domain and a name, such as example.com/budget"
            yield FieldError(path=path, value=gate, rule=rule)
        elif len(gate) > _MOST_CHARACTERS:
            yield FieldError(path=path, value=gate, rule=f"a gate has at most {_MOST_CHARACTERS} characters")
    for gate in duplicates(gates):
        yield FieldError(path=path, value=gate, rule="a gate must be listed only once")
