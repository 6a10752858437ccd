from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Header
from pyspark_log.storage.record.decoding.row_buffers cimport Rows


# The value of a complete message that is a compressed set: from the returned pointer up to `stop`,
# where the message ends. CorruptRecordError: it has none.
cdef const uint8_t* wrapped_set(const uint8_t* p, const uint8_t* stop) except NULL

# Completes the header of a compressed set from its decompressed messages: how many there are, the first and
# the last offset. Checks where they begin and end, their offsets, and their CRCs if asked for;
# CorruptRecordError.
cdef int survey(const uint8_t* data, const uint8_t* end, bint check_crcs, Header* h) except -1

# Appends the messages of a set, or the single one, to `rows`; returns what is wrong, and in
# `bad` with which.
cdef const char* read_messages(
    const Header* header, const uint8_t* data, const uint8_t* end, int64_t from_offset, int64_t until_offset, Rows* rows, int32_t* bad
) noexcept nogil

# Bytes of the message at `p`, which is complete; or what is wrong with it.
cdef const char* measure(const uint8_t* p, const uint8_t* end, Py_ssize_t* size) noexcept nogil

# The position of the key's length in a message.
cdef const uint8_t* fields(const uint8_t* p) noexcept nogil

# Moves from a field's length to its bytes; False if they are incomplete. Any negative length is null.
cdef bint take_field(const uint8_t** at, const uint8_t* stop, int32_t* length) noexcept nogil
