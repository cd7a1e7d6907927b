import static com.fasterxml.jackson.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.inject.AbstractModule;
import com.google.inject.Guice;
import com.google.inject.Injector;
import com.google.inject.Provides;
import com.google.inject.Singleton;
import com.google.inject.TypeLiteral;
import com.google.inject.name.Names;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import javax.mail.internet.MimeMessage;
import org.apache.james.backends.cassandra.init.configuration.CassandraConfiguration;
import org.apache.james.backends.rabbitmq.RabbitMQConfiguration;
import org.apache.james.backends.rabbitmq.RabbitMQConnectionFactory;
import org.apache.james.backends.rabbitmq.ReactorRabbitMQChannelPool;
import org.apache.james.backends.rabbitmq.ReceiverProvider;
import org.apache.james.backends.rabbitmq.SimpleConnectionPool;
import org.apache.james.blob.api.BlobId;
import org.apache.james.blob.api.BlobStore;
import org.apache.james.blob.api.BlobStoreDAO;
import org.apache.james.blob.api.BucketName;
import org.apache.james.blob.api.HashBlobId;
import org.apache.james.blob.cassandra.CassandraBlobStoreDAO;
import org.apache.james.core.MailAddress;
import org.apache.james.eventsourcing.eventstore.EventStore;
import org.apache.james.eventsourcing.eventstore.cassandra.CassandraEventStore;
import org.apache.james.eventsourcing.eventstore.cassandra.JsonEventSerializer;
import org.apache.james.metrics.api.GaugeRegistry;
import org.apache.james.metrics.api.MetricFactory;
import org.apache.james.metrics.api.NoopGaugeRegistry;
import org.apache.james.metrics.logger.DefaultMetricFactory;
import org.apache.james.queue.api.MailQueue.MailQueueItem;
import org.apache.james.queue.api.MailQueue.MailQueueItem.CompletionStatus;
import org.apache.james.queue.api.MailQueueFactory;
import org.apache.james.queue.api.MailQueueItemDecoratorFactory;
import org.apache.james.queue.api.MailQueueName;
import org.apache.james.queue.api.ManageableMailQueue.Type;
import org.apache.james.queue.api.RawMailQueueItemDecoratorFactory;
import org.apache.james.queue.rabbitmq.RabbitMQMailQueue;
import org.apache.james.queue.rabbitmq.RabbitMQMailQueueFactory;
import org.apache.james.queue.rabbitmq.view.RabbitMQMailQueueConfiguration;
import org.apache.james.queue.rabbitmq.view.api.MailQueueView;
import org.apache.james.queue.rabbitmq.view.cassandra.CassandraMailQueueView;
import org.apache.james.queue.rabbitmq.view.cassandra.configuration.CassandraMailQueueViewConfiguration;
import org.apache.james.queue.rabbitmq.view.cassandra.configuration.CassandraMailQueueViewConfigurationModule;
import org.apache.james.queue.rabbitmq.view.cassandra.configuration.EventsourcingConfigurationManagement;
import org.apache.james.server.blob.deduplication.DeDuplicationBlobStore;
import org.apache.james.server.blob.deduplication.GenerationAwareBlobId;
import org.apache.james.server.blob.deduplication.PassThroughBlobStore;
import org.apache.james.server.core.MailImpl;
import org.apache.james.server.core.MimeMessageInputStreamSource;
import org.apache.james.server.core.MimeMessageWrapper;
import org.apache.james.util.MimeMessageUtil;
import org.apache.mailet.Attribute;
import org.apache.mailet.AttributeName;
import org.apache.mailet.AttributeValue;
import org.apache.mailet.Mail;
import org.apache.mailet.PerRecipientHeaders.Header;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import reactor.rabbitmq.RabbitFlux;
import reactor.rabbitmq.ReceiverOptions;
import reactor.rabbitmq.Sender;
import reactor.util.retry.Retry;

/**
 * James's own RabbitMQ mail queue with its Cassandra view, told by lines on standard input what to do.
 *
 * Each line is a JSON object whose `ask` names what is wanted; each answer is a line: `{"answer": ...}` or
 * `{"error": kind, "message": text}`. Nothing of James is replaced but its clock, which can be turned, and its metrics,
 * which nobody reads; it waits longer for Cassandra than the driver's two seconds, since tests share a busy machine.
 */
final class JamesQueue {
    private static final ObjectMapper JSON = new ObjectMapper().disable(FAIL_ON_UNKNOWN_PROPERTIES);

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Desk desk = new Desk();
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            answers.write((JSON.writeValueAsString(answer(desk, line)) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(Desk desk, String line) {
        try {
            return Collections.singletonMap("answer", desk.answer(JSON.readTree(line)));
        } catch (Exception | Error e) {
            return Map.of("error", e.getClass().getSimpleName(), "message", String.valueOf(e.getMessage()));
        }
    }
}

/** One queue at a time, on the servers that were opened last. */
final class Desk {
    private final TurnedClock clock = new TurnedClock();
    private final List<Object> taken = Collections.synchronizedList(new ArrayList<>());
    private Servers servers;
    private Injector injector;
    private RabbitMQMailQueueFactory queues;
    private String name;
    private RabbitMQMailQueue queue;
    private Disposable consuming;

    Object answer(JsonNode asked) throws Exception {
        switch (asked.get("ask").asText()) {
            case "open": return open(asked);
            case "check": return check(asked);
            case "use": return use(asked);
            case "close": return close();
            case "turn": return clock.turn(asked.get("seconds").asLong());
            case "enqueue": return enqueue(asked);
            case "fill": return fill(asked);
            case "browse": return browse();
            case "size": return queue.getSize();
            case "remove": return queue.remove(Type.valueOf(asked.get("by").asText()), asked.get("value").asText());
            case "clear": return queue.clear();
            case "republish": return republish(asked);
            case "move": return move();
            case "consume": return consume(asked);
            case "taken": return List.copyOf(taken);
            case "count": return taken.size();
            case "stop": return stop();
            default: throw new IllegalArgumentException("nobody knows how to " + asked.get("ask").asText());
        }
    }

    private Object open(JsonNode asked) {
        close();
        servers = new Servers(asked, clock);
        injector = Guice.createInjector(servers);
        check(asked);
        queues = injector.getInstance(RabbitMQMailQueueFactory.class);
        return null;
    }

    /** What James's server does first when it starts: it tells how its view is cut, or refuses to go on. */
    private Object check(JsonNode asked) {
        injector.getInstance(EventsourcingConfigurationManagement.class).registerConfiguration(Servers.cut(asked));
        return null;
    }

    private Object use(JsonNode asked) {
        stop();
        clock.turn(asked.get("seconds").asLong());
        name = asked.get("queue").asText();
        queue = queues.createQueue(MailQueueName.of(name), MailQueueFactory.prefetchCount(asked.get("prefetch").asInt()));
        return null;
    }

    private Object close() {
        stop();
        if (servers != null) {
            servers.close();
        }
        servers = null;
        return null;
    }

    private Object enqueue(JsonNode asked) throws Exception {
        for (JsonNode mail : asked.get("mails")) {
            queue.enQueue(Mails.read(mail));
        }
        return null;
    }

    /** Many mails that differ in nothing but their names. */
    private Object fill(JsonNode asked) {
        Flux.range(0, asked.get("mails").asInt())
            .flatMap(number -> Mono.defer(() -> Mono.from(queue.enqueueReactive(Mails.numbered(asked, number))))
                .subscribeOn(Schedulers.boundedElastic()), asked.get("at_once").asInt())
            .blockLast();
        return null;
    }

    private Object browse() {
        List<Object> found = new ArrayList<>();
        queue.browse().forEachRemaining(item -> found.add(Mails.told(item.getMail())));
        return found;
    }

    private Object republish(JsonNode asked) {
        Instant olderThan = clock.instant().minusSeconds(asked.get("older_than").asLong());
        return queue.republishNotProcessedMails(olderThan).collectList().block();
    }

    /** What James does now and then after a delivery or a removal. */
    private Object move() {
        MailQueueView.Factory views = injector.getInstance(MailQueueView.Factory.class);
        ((CassandraMailQueueView) views.create(org.apache.james.queue.rabbitmq.MailQueueName.fromString(name)))
            .updateBrowseStart().block();
        return null;
    }

    /** As James's spooler does: each mail on a thread that may block, and from the beginning where the stream dies. */
    private Object consume(JsonNode asked) {
        CompletionStatus status = CompletionStatus.valueOf(asked.get("status").asText());
        int most = asked.get("at_most").asInt();
        boolean whole = asked.get("whole").asBoolean();
        taken.clear();
        consuming = Flux.from(queue.deQueue())
            .flatMap(item -> Mono.fromRunnable(() -> take(item, status, whole)).subscribeOn(Schedulers.boundedElastic()),
                asked.get("at_once").asInt())
            .retryWhen(Retry.fixedDelay(Long.MAX_VALUE, Duration.ofMillis(100)))
            .takeUntil(nothing -> taken.size() >= most)
            .subscribe();
        return null;
    }

    private void take(MailQueueItem item, CompletionStatus status, boolean whole) {
        try {
            Object told = whole ? Mails.told(item.getMail()) : item.getMail().getName();
            item.done(status);
            taken.add(told);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private Object stop() {
        if (consuming != null) {
            consuming.dispose();
        }
        consuming = null;
        return List.copyOf(taken);
    }
}

/** James's classes, put together as James's server puts them together. */
final class Servers extends AbstractModule implements AutoCloseable {
    private final JsonNode asked;
    private final Clock clock;
    private final CqlSession session;
    private final SimpleConnectionPool connections;
    private final RabbitMQConfiguration rabbitmq;
    private final ReactorRabbitMQChannelPool channels;

    Servers(JsonNode asked, Clock clock) {
        this.asked = asked;
        this.clock = clock;
        session = CqlSession.builder()
            .addContactPoint(new InetSocketAddress(asked.get("cassandra_host").asText(), asked.get("cassandra_port").asInt()))
            .withLocalDatacenter(asked.get("local_dc").asText())
            .withKeyspace(asked.get("keyspace").asText())
            .withConfigLoader(DriverConfigLoader.programmaticBuilder()
                .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(15)).build())
            .build();
        rabbitmq = rabbitmq();
        connections = new SimpleConnectionPool(new RabbitMQConnectionFactory(rabbitmq), SimpleConnectionPool.Configuration.DEFAULT);
        channels = new ReactorRabbitMQChannelPool(connections.getResilientConnection(),
            ReactorRabbitMQChannelPool.Configuration.DEFAULT, new DefaultMetricFactory());
        channels.start();
    }

    private RabbitMQConfiguration rabbitmq() {
        String user = asked.get("user").asText();
        String password = asked.get("password").asText();
        return RabbitMQConfiguration.builder()
            .amqpUri(URI.create("amqp://" + user + ":" + password + "@" + asked.get("broker").asText() + "/" + asked.get("vhost").asText()))
            .managementUri(URI.create("http://" + asked.get("management").asText()))
            .managementCredentials(new RabbitMQConfiguration.ManagementCredentials(user, password.toCharArray()))
            .build();
    }

    static CassandraMailQueueViewConfiguration cut(JsonNode asked) {
        return CassandraMailQueueViewConfiguration.builder()
            .bucketCount(asked.get("buckets").asInt())
            .updateBrowseStartPace(asked.get("pace").asInt())
            .sliceWindow(Duration.ofSeconds(asked.get("window").asLong()))
            .build();
    }

    @Override
    protected void configure() {
        bind(Clock.class).toInstance(clock);
        bind(CqlSession.class).toInstance(session);
        bind(CassandraConfiguration.class).toInstance(CassandraConfiguration.DEFAULT_CONFIGURATION);
        bind(MetricFactory.class).to(DefaultMetricFactory.class);
        bind(GaugeRegistry.class).to(NoopGaugeRegistry.class);
        bind(BucketName.class).annotatedWith(Names.named(BlobStore.DEFAULT_BUCKET_NAME_QUALIFIER)).toInstance(BucketName.DEFAULT);
        bind(BlobId.Factory.class).toInstance(new GenerationAwareBlobId.Factory(clock, new HashBlobId.Factory(),
            GenerationAwareBlobId.Configuration.DEFAULT));
        bind(BlobStoreDAO.class).to(CassandraBlobStoreDAO.class);
        bind(BlobStore.class).to(asked.get("deduplicated").asBoolean() ? DeDuplicationBlobStore.class : PassThroughBlobStore.class);
        bind(EventStore.class).to(CassandraEventStore.class);
        bind(RabbitMQConfiguration.class).toInstance(rabbitmq);
        bind(Sender.class).toInstance(channels.getSender());
        bind(ReceiverProvider.class).toInstance(() ->
            RabbitFlux.createReceiver(new ReceiverOptions().connectionMono(connections.getResilientConnection())));
        bind(MailQueueItemDecoratorFactory.class).to(RawMailQueueItemDecoratorFactory.class);
        bind(RabbitMQMailQueueConfiguration.class).toInstance(RabbitMQMailQueueConfiguration.builder().build());
        bind(CassandraMailQueueViewConfiguration.class).toInstance(cut(asked));
        bind(MailQueueView.Factory.class).to(CassandraMailQueueView.Factory.class);
    }

    @Provides
    @Singleton
    JsonEventSerializer events() {
        return JsonEventSerializer
            .forModules(Set.of(CassandraMailQueueViewConfigurationModule.MAIL_QUEUE_VIEW_CONFIGURATION))
            .withoutNestedType();
    }

    @Override
    public void close() {
        channels.close();
        connections.close();
        session.close();
    }
}

/** Mails as JSON, and back. */
final class Mails {
    static Mail read(JsonNode asked) throws Exception {
        MailImpl mail = MailImpl.builder().name(asked.get("name").asText())
            .sender(Optional.ofNullable(asked.get("sender").textValue()).map(Mails::address))
            .state(asked.get("state").asText())
            .remoteAddr(asked.get("remote_addr").asText())
            .remoteHost(asked.get("remote_host").asText())
            .build();
        mail.setErrorMessage(asked.get("error_message").textValue());
        mail.setLastUpdated(Date.from(Instant.parse(asked.get("last_updated").asText())));
        List<MailAddress> recipients = new ArrayList<>();
        asked.get("recipients").forEach(one -> recipients.add(address(one.asText())));
        mail.setRecipients(recipients);
        for (Map.Entry<String, JsonNode> one : (Iterable<Map.Entry<String, JsonNode>>) asked.get("attributes")::fields) {
            mail.setAttribute(new Attribute(AttributeName.of(one.getKey()), AttributeValue.fromJsonString(one.getValue().asText())));
        }
        for (JsonNode one : asked.get("recipient_headers")) {
            Header header = Header.builder().name(one.get(1).asText()).value(one.get(2).asText()).build();
            mail.addSpecificHeaderForRecipient(header, address(one.get(0).asText()));
        }
        mail.setMessage(message(mail.getName(), asked.get("content").binaryValue()));
        return mail;
    }

    static Mail numbered(JsonNode asked, int number) {
        try {
            String name = asked.get("name").asText() + number;
            return MailImpl.builder().name(name).sender("from@example.test").addRecipient("to@example.test")
                .mimeMessage(message(name, asked.get("content").binaryValue())).build();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static Map<String, Object> told(Mail mail) {
        Map<String, Object> told = new TreeMap<>();
        Map<String, String> attributes = new TreeMap<>();
        mail.attributes().forEach(one -> attributes.put(one.getName().asString(), one.getValue().toJson().get().toString()));
        List<List<String>> headers = new ArrayList<>();
        mail.getPerRecipientSpecificHeaders().getHeadersByRecipient().forEach((recipient, header) ->
            headers.add(Arrays.asList(recipient.asString(), header.getName(), header.getValue())));
        told.put("name", mail.getName());
        told.put("sender", mail.getMaybeSender().asOptional().map(MailAddress::asString).orElse(null));
        told.put("recipients", mail.getRecipients().stream().map(MailAddress::asString).toArray());
        told.put("state", mail.getState());
        told.put("error_message", mail.getErrorMessage());
        told.put("remote_addr", mail.getRemoteAddr());
        told.put("remote_host", mail.getRemoteHost());
        told.put("last_updated", mail.getLastUpdated().toInstant().toString());
        told.put("attributes", attributes);
        told.put("recipient_headers", headers);
        told.put("content", bytes(mail));
        return told;
    }

    private static byte[] bytes(Mail mail) {
        try {
            return MimeMessageUtil.asBytes(mail.getMessage());
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static MimeMessage message(String name, byte[] content) throws Exception {
        return new MimeMessageWrapper(MimeMessageInputStreamSource.create(name, new ByteArrayInputStream(content)));
    }

    private static MailAddress address(String text) {
        try {
            return new MailAddress(text);
        } catch (Exception e) {
            throw new IllegalArgumentException(text, e);
        }
    }
}

/** The time, and so many seconds more. */
final class TurnedClock extends Clock {
    private volatile long seconds;

    Object turn(long wanted) {
        seconds = wanted;
        return null;
    }

    @Override
    public ZoneId getZone() {
        return ZoneOffset.UTC;
    }

    @Override
    public Clock withZone(ZoneId zone) {
        return this;
    }

    @Override
    public Instant instant() {
        return Clock.systemUTC().instant().plusSeconds(seconds);
    }
}
