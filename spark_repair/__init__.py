"""The same decisions over the whole cluster: Spark finds the suspects, its executors look again and mend.

The only package that imports PySpark.
"""
