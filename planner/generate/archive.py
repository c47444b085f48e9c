"""Files of a plan -> the bytes of a zip, the same for the same files."""

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first date that a zip can hold; the time of the download is not part of the plan."""


def zip_files(files: Mapping[str, str], folder: str) -> bytes:
    """Return a zip with the files in one folder; shell scripts are executable."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name, text in sorted(files.items()):
            entry = ZipInfo(f"{folder}/{name}", date_time=_EARLIEST)
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".sh") else 0o100644) << 16
            archive.writestr(entry, text.encode())
    return buffer.getvalue()
