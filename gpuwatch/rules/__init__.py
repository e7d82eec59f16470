"""Alert and recording rules as data: what an operator should be woken for, told of, or may look up, in the words of Prometheus."""
