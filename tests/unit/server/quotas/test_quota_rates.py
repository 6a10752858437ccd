"""Rates and permits over time; tests/kafka/test_quota_decisions.py has them compared with Kafka's."""

from pyspark_log.server.quotas.rates import Rate, TokenBucket


def test_a_rate_that_is_too_high():
    """Kafka's own example: 6300 B in 10.5 s are 600 B/s, a fifth more than 500."""
    rate = Rate()
    for second in range(10):
        rate.add(500, second * 1000)
    assert rate.excess_ms(500, 9999) == 0
    rate.add(1300, 10_500)
    assert rate.measure(10_500) == (600, 10_500)
    assert rate.excess_ms(500, 10_500) == 2100
    rate.add(-1300, 10_500)
    assert rate.excess_ms(500, 10_500) == 0


def test_what_was_used_at_first_counts_as_if_over_ten_seconds():
    rate = Rate()
    rate.add(5000, 7)
    assert rate.excess_ms(500, 7) == 0
    rate.add(50, 7)
    assert rate.excess_ms(500, 7) == 100


def test_what_is_long_ago_does_not_count():
    rate = Rate()
    assert rate.is_over(0)
    rate.add(1_000_000, 0)
    assert not rate.is_over(10_999)
    assert rate.measure(10_999)[0] > 90_000
    assert rate.is_over(11_000)
    assert rate.measure(11_000)[0] == 0


def test_a_wait_fits_into_its_field():
    rate = Rate()
    rate.add(1e12, 0)
    assert rate.excess_ms(0.001, 0) == 2**31 - 1


def test_permits():
    bucket = TokenBucket(0)
    assert bucket.is_full(0)
    assert bucket.take(11, 1, 0, strict=True) == 0
    assert not bucket.is_full(10_999)
    assert bucket.take(5, 1, 0, strict=True) == 0  # as there are not too few yet
    assert bucket.take(1, 1, 1000, strict=True) == 4000
    assert bucket.take(1, 1, 1000, strict=False) == 5000
    assert bucket.take(1, 1, 6000, strict=True) == 0
    assert not bucket.is_full(17_999)
    assert bucket.is_full(18_000)


def test_a_refusal_is_never_without_a_wait():
    bucket = TokenBucket(0)
    assert bucket.take(11_000.1, 1000, 0, strict=True) == 0
    assert bucket.take(1, 1000, 0, strict=True) == 1
