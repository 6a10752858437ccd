"""What one request may read and show, at most. docs/guides/ui.md has the table."""

from __future__ import annotations

#: Records on one page.
MOST_RECORDS = 100
#: Those that a page has unless it is asked for fewer or more.
USUAL_RECORDS = 50
#: Records of all partitions together, of which a page has the first or last ones.
MOST_MIXED = 400
#: Bytes of record batches, as they are stored, that a page of records is made of; or a single larger batch.
MOST_BYTES = 1 << 20
#: The same for one step of a look-up by key.
SCAN_BYTES = 8 << 20
#: Partitions of which a page shows the last records together.
MOST_PARTITIONS = 100
#: Bytes of a key or value in a list of records, and on the page of one record.
LISTED_BYTES, RECORD_BYTES = 4 << 10, 256 << 10
#: Characters of a key or value in a list.
LISTED_CHARACTERS = 240
#: Characters of a value on its page, laid out.
SHOWN_CHARACTERS = 1 << 20
#: Characters of a JSON text that has colours, each part of which is a tag.
COLOURED_CHARACTERS = 64 << 10
#: Fields of JSON that are columns.
MOST_COLUMNS = 12
#: Headers of a record, and bytes of each of their values.
MOST_HEADERS, HEADER_BYTES = 100, 1 << 10
#: Rows of a table on one page.
MOST_ROWS = 200
#: Digits of a whole number in an address.
MOST_DIGITS = 18
#: Topics and groups whose history is kept, and samples of each.
MOST_HISTORIES, SAMPLES = 2000, 120
