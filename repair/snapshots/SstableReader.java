import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.ColumnIdentifier;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.context.CounterContext;
import org.apache.cassandra.db.marshal.*;
import org.apache.cassandra.db.partitions.*;
import org.apache.cassandra.db.rows.*;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.io.sstable.Component;
import org.apache.cassandra.io.sstable.Descriptor;
import org.apache.cassandra.io.sstable.ISSTableScanner;
import org.apache.cassandra.io.sstable.format.SSTableFormat;
import org.apache.cassandra.io.sstable.format.SSTableReader;
import org.apache.cassandra.io.util.DataIntegrityMetadata;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.*;
import org.apache.cassandra.transport.ProtocolVersion;

/**
 * Reads the live rows of tables from SSTables. Requests come on stdin, frames of rows go to stdout; the Python side of
 * both is wire.py, which describes their form. The process ends when stdin ends.
 */
public final class SstableReader {
    private static final int ROWS_OF_A_FRAME = 4096;
    private static final int BYTES_OF_A_FRAME = 4 << 20;

    public static void main(String[] args) throws IOException {
        DataOutputStream out = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 18));
        System.setOut(System.err);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        ((ch.qos.logback.classic.Logger) org.slf4j.LoggerFactory.getLogger("ROOT"))
            .setLevel(ch.qos.logback.classic.Level.ERROR);
        DatabaseDescriptor.clientInitialization(false);
        DatabaseDescriptor.setPartitionerUnsafe(Murmur3Partitioner.instance);
        while (true) {
            Request request;
            try {
                request = new Request(in);
            } catch (EOFException end) {
                break;
            }
            Frames frames = new Frames(out);
            try {
                answer(request, frames);
            } catch (IOException gone) {
                break;
            } catch (Throwable error) {
                frames.text('F', reason(error));
            }
            out.flush();
        }
        System.exit(0);
    }

    private static void answer(Request request, Frames frames) throws IOException {
        TableMetadata table = request.metadata();
        List<Source> sources = new ArrayList<>();
        long rows = 0;
        try {
            for (String file : request.files) {
                Source source = new Source(file, table);
                source.open();
                sources.add(source);
            }
            List<UnfilteredPartitionIterator> parts = new ArrayList<>();
            for (Source source : sources) {
                if (source.damage == null) {
                    parts.add(source);
                }
            }
            if (!parts.isEmpty()) {
                rows = send(table, parts, request, frames);
            }
            for (Source source : sources) {
                if (source.damage != null) {
                    frames.text('D', source.file + "\n" + source.damage);
                }
            }
        } finally {
            for (Source source : sources) {
                source.release();
            }
        }
        frames.end(rows);
    }

    private static long send(TableMetadata table, List<UnfilteredPartitionIterator> parts, Request request,
                             Frames frames) throws IOException {
        List<Cells> cells = new ArrayList<>();
        for (String name : request.wanted) {
            ColumnMetadata column = table.getColumn(ColumnIdentifier.getInterned(name, true));
            if (column == null) {
                throw new IllegalArgumentException("the table has no column " + name);
            }
            cells.add(new Cells(column));
        }
        boolean composite = table.partitionKeyType instanceof CompositeType;
        UnfilteredPartitionIterator merged = parts.size() == 1
            ? parts.get(0)
            : UnfilteredPartitionIterators.merge(parts, UnfilteredPartitionIterators.MergeListener.NOOP);
        long count = 0;
        int filled = 0;
        try (PartitionIterator partitions = UnfilteredPartitionIterators.filter(merged, request.now)) {
            while (partitions.hasNext()) {
                try (RowIterator rows = partitions.next()) {
                    ByteBuffer key = rows.partitionKey().getKey();
                    ByteBuffer[] keys = composite
                        ? ((CompositeType) table.partitionKeyType).split(key)
                        : new ByteBuffer[] {key};
                    Row statics = rows.staticRow();
                    boolean alone = !rows.hasNext();
                    while (alone || rows.hasNext()) {
                        Row row = alone ? null : rows.next();
                        alone = false;
                        int bytes = 0;
                        for (Cells cell : cells) {
                            cell.add(keys, row, statics);
                            bytes += cell.length;
                        }
                        count++;
                        filled++;
                        if (filled == ROWS_OF_A_FRAME || bytes >= BYTES_OF_A_FRAME) {
                            frames.rows(cells, filled);
                            filled = 0;
                        }
                    }
                }
            }
        }
        if (filled > 0) {
            frames.rows(cells, filled);
        }
        return count;
    }

    static String reason(Throwable error) {
        StringBuilder said = new StringBuilder();
        int depth = 0;
        for (Throwable one = error; one != null && depth < 4; one = one.getCause()) {
            if (depth > 0) {
                said.append(": ");
            }
            said.append(one.getClass().getSimpleName());
            if (one.getMessage() != null) {
                said.append(" ").append(one.getMessage().replace('\n', ' '));
            }
            depth++;
        }
        return said.toString();
    }

    /** One table to read: its columns, its files, and the instant at which cells that expire are judged. */
    private static final class Request {
        final String keyspace;
        final String table;
        final long now;
        final Types types;
        final TableMetadata.Builder builder;
        final List<String> wanted = new ArrayList<>();
        final List<String> files = new ArrayList<>();

        Request(DataInputStream in) throws IOException {
            keyspace = text(in);
            table = text(in);
            now = in.readLong();
            Types.RawBuilder raw = Types.rawBuilder(keyspace);
            for (int left = in.readInt(); left > 0; left--) {
                String name = text(in);
                List<String> fields = new ArrayList<>();
                List<String> kinds = new ArrayList<>();
                for (int more = in.readInt(); more > 0; more--) {
                    fields.add(text(in));
                    kinds.add(text(in));
                }
                raw.add(name, fields, kinds);
            }
            types = raw.build();
            builder = TableMetadata.builder(keyspace, table).partitioner(Murmur3Partitioner.instance);
            boolean counts = false;
            for (int left = in.readInt(); left > 0; left--) {
                String name = text(in);
                AbstractType<?> type = type(text(in));
                counts |= type instanceof CounterColumnType;
                switch (in.readByte()) {
                    case 'p': builder.addPartitionKeyColumn(id(name), type.freeze()); break;
                    case 'c': builder.addClusteringColumn(id(name), type.freeze()); break;
                    case 'd': builder.addClusteringColumn(id(name), ReversedType.getInstance(type.freeze())); break;
                    case 's': builder.addStaticColumn(id(name), type); break;
                    default: builder.addRegularColumn(id(name), type);
                }
            }
            builder.isCounter(counts);
            for (int left = in.readInt(); left > 0; left--) {
                String name = text(in);
                AbstractType<?> type = type(text(in));
                boolean fixed = in.readByte() == 's';
                ColumnMetadata column = fixed
                    ? ColumnMetadata.staticColumn(keyspace, table, name, type)
                    : ColumnMetadata.regularColumn(keyspace, table, name, type);
                builder.recordColumnDrop(column, in.readLong());
            }
            for (int left = in.readInt(); left > 0; left--) {
                wanted.add(text(in));
            }
            for (int left = in.readInt(); left > 0; left--) {
                files.add(text(in));
            }
        }

        TableMetadata metadata() {
            return builder.build();
        }

        private AbstractType<?> type(String spelled) {
            return CQLTypeParser.parse(keyspace, spelled, types);
        }

        private static ColumnIdentifier id(String name) {
            return ColumnIdentifier.getInterned(name, true);
        }

        private static String text(DataInputStream in) throws IOException {
            byte[] bytes = new byte[in.readInt()];
            in.readFully(bytes);
            return new String(bytes, StandardCharsets.UTF_8);
        }
    }

    /** One SSTable. Damage ends its rows, and is kept: the rows of the other SSTables go on. */
    private static final class Source implements UnfilteredPartitionIterator {
        final String file;
        final TableMetadata table;
        String damage;
        private SSTableReader reader;
        private ISSTableScanner scanner;
        private UnfilteredRowIterator next;

        Source(String file, TableMetadata table) {
            this.file = file;
            this.table = table;
        }

        void open() {
            try {
                Descriptor named =
                    Descriptor.fromFileWithComponent(new File(file), table.keyspace, table.name).left;
                reader = SSTableReader.openNoValidation(null, named, TableMetadataRef.forOfflineTools(table));
                if (!reader.compression) {
                    checkDigest(named);
                }
                scanner = reader.getScanner();
            } catch (Exception | IOError | AssertionError | NoClassDefFoundError error) {
                damage = reason(error);
            }
        }

        /** Only chunks of compressed files have checksums that a scan looks at. */
        private void checkDigest(Descriptor named) throws IOException {
            File digest = named.fileFor(SSTableFormat.Components.DIGEST);
            if (digest.exists()) {
                new DataIntegrityMetadata.FileDigestValidator(
                    named.fileFor(SSTableFormat.Components.DATA), digest).validate();
            }
        }

        @Override
        public boolean hasNext() {
            if (next != null) {
                return true;
            }
            if (damage != null) {
                return false;
            }
            try {
                if (!scanner.hasNext()) {
                    return false;
                }
                UnfilteredRowIterator found = scanner.next();
                found.partitionLevelDeletion();
                found.staticRow();
                next = new Rows(found);
                return true;
            } catch (Exception | IOError | AssertionError error) {
                damage = reason(error);
                return false;
            }
        }

        @Override
        public UnfilteredRowIterator next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            UnfilteredRowIterator found = next;
            next = null;
            return found;
        }

        @Override
        public TableMetadata metadata() {
            return table;
        }

        @Override
        public void close() {
            if (scanner != null) {
                try {
                    scanner.close();
                } catch (Exception | IOError ignored) {
                    scanner = null;
                }
            }
        }

        void release() {
            if (reader != null) {
                reader.selfRef().release();
            }
        }

        /** The rows of one partition, up to the first that cannot be read. */
        private final class Rows implements UnfilteredRowIterator {
            private final UnfilteredRowIterator rows;

            Rows(UnfilteredRowIterator rows) {
                this.rows = rows;
            }

            @Override
            public boolean hasNext() {
                if (damage != null) {
                    return false;
                }
                try {
                    return rows.hasNext();
                } catch (Exception | IOError | AssertionError error) {
                    damage = reason(error);
                    return false;
                }
            }

            @Override public Unfiltered next() { return rows.next(); }
            @Override public void close() { rows.close(); }
            @Override public TableMetadata metadata() { return rows.metadata(); }
            @Override public boolean isReverseOrder() { return rows.isReverseOrder(); }
            @Override public RegularAndStaticColumns columns() { return rows.columns(); }
            @Override public DecoratedKey partitionKey() { return rows.partitionKey(); }
            @Override public Row staticRow() { return rows.staticRow(); }
            @Override public DeletionTime partitionLevelDeletion() { return rows.partitionLevelDeletion(); }
            @Override public EncodingStats stats() { return rows.stats(); }
        }
    }

    /** The cells of one column in a frame. */
    private static final class Cells {
        final ColumnMetadata column;
        final AbstractType<?> type;
        final int width;
        private final boolean[] nulls = new boolean[ROWS_OF_A_FRAME];
        private final int[] lengths = new int[ROWS_OF_A_FRAME];
        private byte[] bytes = new byte[ROWS_OF_A_FRAME * 16];
        private int rows;
        private int length;
        private boolean anyNull;

        Cells(ColumnMetadata column) {
            this.column = column;
            AbstractType<?> stated = column.type;
            type = stated instanceof ReversedType ? ((ReversedType<?>) stated).baseType : stated;
            width = widthOf(type);
        }

        private static int widthOf(AbstractType<?> type) {
            if (type instanceof UUIDType || type instanceof TimeUUIDType) {
                return 16;
            }
            if (type instanceof LongType || type instanceof TimestampType || type instanceof CounterColumnType) {
                return 8;
            }
            if (type instanceof Int32Type) {
                return 4;
            }
            return type instanceof BooleanType ? 1 : 0;
        }

        void add(ByteBuffer[] keys, Row row, Row statics) {
            ByteBuffer value = value(keys, row, statics);
            if (value != null && width > 0 && value.remaining() != width) {
                value = null;
            }
            int size = width;
            if (value == null) {
                nulls[rows] = true;
                anyNull = true;
                lengths[rows] = -1;
            } else {
                size = value.remaining();
                nulls[rows] = false;
                lengths[rows] = size;
            }
            if (value != null || width > 0) {
                if (bytes.length - length < size) {
                    bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, length + size));
                }
                if (value == null) {
                    Arrays.fill(bytes, length, length + size, (byte) 0);
                } else {
                    value.duplicate().get(bytes, length, size);
                }
                length += size;
            }
            rows++;
        }

        private ByteBuffer value(ByteBuffer[] keys, Row row, Row statics) {
            switch (column.kind) {
                case PARTITION_KEY:
                    return keys[column.position()];
                case CLUSTERING:
                    return row == null ? null : row.clustering().bufferAt(column.position());
                default:
                    Row from = column.isStatic() ? statics : row;
                    return from == null ? null : cell(from);
            }
        }

        private ByteBuffer cell(Row row) {
            if (column.isComplex()) {
                ComplexColumnData many = row.getComplexColumnData(column);
                if (many == null) {
                    return null;
                }
                if (type instanceof UserType) {
                    return ((UserType) type).serializeForNativeProtocol(many.iterator(), ProtocolVersion.V5);
                }
                return ((CollectionType<?>) type).serializeForNativeProtocol(many.iterator());
            }
            Cell<?> one = row.getCell(column);
            if (one == null) {
                return null;
            }
            if (type instanceof CounterColumnType) {
                return counted(CounterContext.instance().total(one));
            }
            return one.buffer();
        }

        private static ByteBuffer counted(long number) {
            return ByteBuffer.allocate(8).putLong(0, number);
        }

        void write(DataOutputStream out) throws IOException {
            out.writeByte(width);
            out.writeByte(anyNull ? 1 : 0);
            if (width == 0) {
                for (int at = 0; at < rows; at++) {
                    out.writeInt(lengths[at]);
                }
            } else if (anyNull) {
                for (int at = 0; at < rows; at++) {
                    out.writeByte(nulls[at] ? 1 : 0);
                }
            }
            out.writeInt(length);
            out.write(bytes, 0, length);
        }

        void clear() {
            rows = 0;
            length = 0;
            anyNull = false;
        }
    }

    /** The answer: each frame is a letter, the length of what follows, and that. */
    private static final class Frames {
        private final DataOutputStream out;
        private final ByteArrayOutputStream held = new ByteArrayOutputStream(1 << 20);

        Frames(DataOutputStream out) {
            this.out = out;
        }

        void rows(List<Cells> columns, int rows) throws IOException {
            held.reset();
            DataOutputStream body = new DataOutputStream(held);
            body.writeInt(rows);
            for (Cells cells : columns) {
                cells.write(body);
                cells.clear();
            }
            frame('R');
        }

        void text(char kind, String said) throws IOException {
            held.reset();
            held.write(said.getBytes(StandardCharsets.UTF_8));
            frame(kind);
        }

        void end(long rows) throws IOException {
            held.reset();
            new DataOutputStream(held).writeLong(rows);
            frame('E');
        }

        private void frame(char kind) throws IOException {
            out.writeByte(kind);
            out.writeInt(held.size());
            held.writeTo(out);
        }
    }
}
