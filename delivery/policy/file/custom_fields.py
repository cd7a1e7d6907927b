"""The fields of a policy file that are attributes of mails, which the file declares at its top."""

from collections.abc import Mapping

from mailmend.delivery.policy.file.custom_forms import CUSTOM_MAX
from mailmend.delivery.policy.file.nodes import PolicyNode, read_each
from mailmend.delivery.policy.policy import PickupField, custom_field


def custom_fields(node: PolicyNode) -> Mapping[str, PickupField]:
    """The declared fields by their names; what is refused is noted."""
    found = dict[str, PickupField]()
    for entry in node.listed("fields"):
        for named in read_each([entry], lambda one: one.parsed(custom_field, "a field")):
            if named.value in found:
                entry.note(f"the field {named.value} is there twice")
            found[named.value] = named
    if len(found) > CUSTOM_MAX:
        node.note(f"there are more than {CUSTOM_MAX} fields", "Count by fewer attributes.")
    return found
