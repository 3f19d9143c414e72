"""The one exception of the wire codec.

Whatever a peer sends, decoding it ends in a value or in `ProtocolError`; the
connection that sent it is closed, logged once, and nothing else happens.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The bytes are not what the protocol allows here: close this connection."""
