import com.datastax.oss.driver.api.core.CqlSession;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.time.Clock;
import java.util.Arrays;
import java.util.Base64;
import java.util.UUID;
import org.apache.james.backends.cassandra.init.CassandraTypesProvider;
import org.apache.james.backends.cassandra.init.configuration.CassandraConfiguration;
import org.apache.james.blob.api.BlobId;
import org.apache.james.blob.api.BucketName;
import org.apache.james.blob.api.HashBlobId;
import org.apache.james.blob.cassandra.CassandraBlobStoreDAO;
import org.apache.james.blob.cassandra.CassandraBucketDAO;
import org.apache.james.blob.cassandra.CassandraDefaultBucketDAO;
import org.apache.james.mailbox.cassandra.ids.CassandraMessageId;
import org.apache.james.mailbox.cassandra.mail.CassandraMessageDAOV3;
import org.apache.james.mailbox.store.mail.MessageMapper.FetchType;
import org.apache.james.metrics.logger.DefaultMetricFactory;
import org.apache.james.server.blob.deduplication.GenerationAwareBlobId;
import org.apache.james.server.blob.deduplication.PassThroughBlobStore;

/**
 * Reads messages as James does, blobs from its own tables: a line for each, its bytes in Base64.
 *
 * Arguments: host, port, data centre, keyspace, then ids of messages.
 */
final class JamesMailbox {
    public static void main(String[] arguments) throws Exception {
        PrintStream answer = System.out;
        System.setOut(System.err);
        CqlSession session = CqlSession.builder()
            .addContactPoint(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])))
            .withLocalDatacenter(arguments[2])
            .withKeyspace(arguments[3])
            .build();
        CassandraMessageDAOV3 messages = messages(session);
        for (String id : Arrays.copyOfRange(arguments, 4, arguments.length)) {
            CassandraMessageId message = CassandraMessageId.Factory.of(UUID.fromString(id));
            answer.println(Base64.getEncoder().encodeToString(
                messages.retrieveMessage(message, FetchType.FULL).block().getContent().getInputStream().readAllBytes()));
        }
        answer.flush();
        System.exit(0);
    }

    private static CassandraMessageDAOV3 messages(CqlSession session) {
        BlobId.Factory ids = new GenerationAwareBlobId.Factory(Clock.systemUTC(), new HashBlobId.Factory(),
            GenerationAwareBlobId.Configuration.DEFAULT);
        CassandraBlobStoreDAO blobs = new CassandraBlobStoreDAO(new CassandraDefaultBucketDAO(session, ids),
            new CassandraBucketDAO(ids, session), CassandraConfiguration.DEFAULT_CONFIGURATION, BucketName.DEFAULT,
            new DefaultMetricFactory());
        return new CassandraMessageDAOV3(session, new CassandraTypesProvider(session),
            new PassThroughBlobStore(blobs, BucketName.DEFAULT, ids), ids);
    }
}
