import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.james.backends.cassandra.init.configuration.CassandraConfiguration;
import org.apache.james.blob.api.HashBlobId;
import org.apache.james.mailbox.cassandra.mail.CassandraMessageIdDAO;
import org.apache.james.mailbox.cassandra.mail.CassandraMessageIdToImapUidDAO;
import org.apache.james.mailbox.cassandra.mail.task.SolveMessageInconsistenciesService;
import org.apache.james.mailbox.cassandra.mail.task.SolveMessageInconsistenciesService.RunningOptions;
import org.apache.james.mailbox.cassandra.mail.task.SolveMessageInconsistenciesTask;
import org.apache.james.task.Task;

/**
 * James's own repair of messageIdTable, at a pace, for so many seconds at most; then a line of JSON: how far it came.
 *
 * Arguments: host, port, data centre, keyspace, rows a second, seconds. The driver is set as James ships it.
 */
final class JamesRepair {
    public static void main(String[] arguments) throws Exception {
        PrintStream answer = System.out;
        System.setOut(System.err);
        CqlSession session = session(arguments);
        HashBlobId.Factory blobs = new HashBlobId.Factory();
        SolveMessageInconsistenciesTask task = new SolveMessageInconsistenciesTask(
            service(
                new CassandraMessageIdToImapUidDAO(session, blobs, CassandraConfiguration.DEFAULT_CONFIGURATION),
                new CassandraMessageIdDAO(session, blobs)),
            new RunningOptions(Integer.parseInt(arguments[4])));
        long began = System.nanoTime();
        String result = ended(CompletableFuture.supplyAsync(() -> run(task)), Long.parseLong(arguments[5]));
        double seconds = (System.nanoTime() - began) / 1e9;
        SolveMessageInconsistenciesTask.Details done =
            (SolveMessageInconsistenciesTask.Details) task.details().get();
        answer.printf("{\"result\": \"%s\", \"seconds\": %.3f, \"rows\": %d, \"changed\": %d, \"errors\": %d}%n", result, seconds,
            done.getProcessedMessageIdEntries() + done.getProcessedImapUidEntries(),
            done.getAddedMessageIdEntries() + done.getUpdatedMessageIdEntries() + done.getRemovedMessageIdEntries(),
            done.getErrors().size());
        answer.flush();
        System.exit(0);
    }

    /** Its constructor is for Guice alone. */
    private static SolveMessageInconsistenciesService service(
        CassandraMessageIdToImapUidDAO truth, CassandraMessageIdDAO projection) throws Exception {
        Constructor<SolveMessageInconsistenciesService> made = SolveMessageInconsistenciesService.class
            .getDeclaredConstructor(CassandraMessageIdToImapUidDAO.class, CassandraMessageIdDAO.class);
        made.setAccessible(true);
        return made.newInstance(truth, projection);
    }

    private static String ended(CompletableFuture<Task.Result> running, long seconds) throws Exception {
        try {
            return running.get(seconds, TimeUnit.SECONDS).name();
        } catch (TimeoutException e) {
            return "CUT";
        }
    }

    private static Task.Result run(Task task) {
        try {
            return task.run();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static CqlSession session(String[] arguments) {
        return CqlSession.builder()
            .addContactPoint(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])))
            .withLocalDatacenter(arguments[2])
            .withKeyspace(arguments[3])
            .withConfigLoader(DriverConfigLoader.programmaticBuilder()
                .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(5))
                .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "QUORUM")
                .withInt(DefaultDriverOption.REQUEST_PAGE_SIZE, 5000)
                .build())
            .build();
    }
}
