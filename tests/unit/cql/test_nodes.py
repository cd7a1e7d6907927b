"""SSTables of a read, as a node's trace names them; the sentences are those of Cassandra 4.0, 4.1 and 5.0."""

from cql.driver.nodes import sstables_in

END = "Read 20 live rows and 0 tombstone cells"


def test_each_sstable_is_counted_once() -> None:
    """By whichever way its index was found."""
    steps = [
        "Key cache hit for sstable 3gr0_1, size = 0",
        "Partition index found for sstable 4, size = 0",
        "Partition index with 12 entries found for sstable 5, size = 600",
        "Key cache hit for sstable 4, size = 0",
        END,
    ]

    assert sstables_in(steps) == 3


def test_what_a_bloom_filter_skipped_was_not_read() -> None:
    """It cost a look into memory, no more."""
    assert sstables_in(["Bloom filter allows skipping sstable 7", "Merging memtable contents", END]) == 0


def test_the_merge_says_how_many_there_were() -> None:
    """Where the key cache has other words, the sum is still there."""
    assert sstables_in(["Merged data from memtables and 4 sstables", END]) == 4


def test_a_trace_that_is_not_written_whole_says_nothing_yet() -> None:
    """Its steps come one by one, a moment after the answer."""
    assert sstables_in(["Key cache hit for sstable 3, size = 0"]) is None
    assert sstables_in([]) is None
