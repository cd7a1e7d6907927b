"""The cassandra.yaml of a local node, as a value and as text.

It is written as JSON, which YAML readers read: no YAML library is needed and nothing can be quoted wrongly. What is set
here differs from Cassandra's defaults for one of three reasons: loopback only, little memory, or a machine that may be
busy with a Spark job at the same time.
"""

import json
from typing import Any

from admin.local.layout import NodeFolders
from admin.local.settings import Settings

LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>${cassandra.logdir}/system.log</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>${cassandra.logdir}/system.log.%i</fileNamePattern>
      <minIndex>1</minIndex>
      <maxIndex>2</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>20MB</maxFileSize>
    </triggeringPolicy>
    <encoder>
      <pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern>
    </encoder>
  </appender>
  <root level="INFO">
    <appender-ref ref="FILE"/>
  </root>
</configuration>
"""


def yaml_of(settings: Settings, number: int, folders: NodeFolders) -> dict[str, Any]:
    """Every setting of one node that differs from Cassandra's own defaults, the caller's overrides last."""
    host = settings.hosts[number - 1]
    return {
        "cluster_name": "mailmend local",
        "num_tokens": 16,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "authenticator": settings.authenticator,
        "authorizer": "CassandraAuthorizer" if asks_passwords(settings) else "AllowAllAuthorizer",
        **_addresses(settings, host),
        **_folders(folders),
        **_memory(settings),
        **_patience(),
        **settings.yaml,
    }


def render(document: dict[str, Any]) -> str:
    """The document as text that Cassandra reads."""
    return json.dumps(document, indent=2) + "\n"


def asks_passwords(settings: Settings) -> bool:
    """Whether clients have to log in."""
    return settings.authenticator.endswith("PasswordAuthenticator")


def demands_tls(settings: Settings) -> bool:
    """Whether the node talks to no client in the clear."""
    encryption = settings.yaml.get("client_encryption_options", {})
    return bool(encryption.get("enabled")) and not encryption.get("optional")


def _addresses(settings: Settings, host: str) -> dict[str, Any]:
    seed = f"{settings.hosts[0]}:{settings.storage_port}"
    return {
        "listen_address": host,
        "rpc_address": host,
        "storage_port": settings.storage_port,
        "ssl_storage_port": settings.storage_port,  # encryption between nodes is off: it is never opened
        "start_native_transport": True,
        "native_transport_port": settings.native_port,
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": seed}]}
        ],
    }


def _folders(folders: NodeFolders) -> dict[str, Any]:
    return {
        "data_file_directories": [str(folders.data / "sstables")],
        "commitlog_directory": str(folders.data / "commitlog"),
        "hints_directory": str(folders.data / "hints"),
        "saved_caches_directory": str(folders.data / "saved_caches"),
        "cdc_raw_directory": str(folders.data / "cdc_raw"),
        "cdc_enabled": False,
        "auto_snapshot": False,  # a dropped keyspace gives its space back
        # Written through a memory map, so an acknowledged write outlives kill -9 but for the last tenth of a second.
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "1s",
        "commitlog_segment_size": "16MiB",
        "commitlog_total_space": "256MiB",
    }


def _memory(settings: Settings) -> dict[str, Any]:
    memtables = f"{settings.heap_mib // 5}MiB"
    return {
        "memtable_heap_space": memtables,
        "memtable_offheap_space": memtables,
        "memtable_flush_writers": 1,
        "key_cache_size": "16MiB",
        "counter_cache_size": "4MiB",
        "file_cache_size": "32MiB",
        "networking_cache_size": "16MiB",
        "concurrent_reads": 16,
        "concurrent_writes": 16,
        "concurrent_counter_writes": 8,
        "concurrent_compactors": 1,
    }


def _patience() -> dict[str, Any]:
    """Time-outs for a machine that does other work too; a fault test passes its own."""
    return {
        "read_request_timeout": "10s",
        "range_request_timeout": "30s",
        "write_request_timeout": "10s",
        "counter_write_request_timeout": "10s",
        "cas_contention_timeout": "5s",
        "truncate_request_timeout": "60s",
        "request_timeout": "15s",
        "slow_query_log_timeout": "0ms",
    }
