"""The Spark engine: Spark finds suspects in the whole keyspace, its executors look again and mend.

The only package that imports PySpark.
"""
