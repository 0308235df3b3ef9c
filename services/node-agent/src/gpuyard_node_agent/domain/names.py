"""Names of nodes and of card models, made safe without losing what people call them."""

import hashlib
import re
import unicodedata

_NOT_ID = re.compile(r"[^a-z0-9]+")
_FORM = re.compile(r"(SXM\d*|PCIE|PCI-E|HBM\d*[A-Z]?|NVL\d*|OAM|GENERATION)", re.IGNORECASE)
_VENDOR = re.compile(r"^(NVIDIA|TESLA|QUADRO|GEFORCE|AMD|INSTINCT)$", re.IGNORECASE)
_SIZE = re.compile(r"^(\d+)\s*GB$", re.IGNORECASE)


def node_id_of(host_name: str) -> str:
    """A node id made from what the machine is called: ASCII, lower case, at most 63 characters.

    Where characters had to go, a short hash of the whole name is added, so that two machines that differ only in those keep apart.
    """
    plain = unicodedata.normalize("NFKD", host_name).encode("ascii", "ignore").decode()
    found = _NOT_ID.sub("-", plain.lower()).strip("-")
    if found == host_name.lower() and found and len(found) <= 63:
        return found
    mark = hashlib.sha256(host_name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{found[:54].strip('-') or 'node'}-{mark}"


def model_of(name: str) -> str:
    """``NVIDIA A100-SXM4-80GB`` → ``A100-80GB``, ``Tesla T4`` → ``T4``: the name people ask for, without vendor and form factor."""
    words = [word for word in re.split(r"[\s_-]+", name.strip()) if word]
    kept = [word for word in words if not _VENDOR.match(word) and not _FORM.fullmatch(word)]
    sized = [f"{found[1]}GB" if (found := _SIZE.match(word)) else word for word in kept]
    safe = [cleaned for word in sized if (cleaned := re.sub(r"[^A-Za-z0-9.]", "", word).strip("."))]
    return "-".join(safe)[:63].rstrip("-.") or "unknown"
