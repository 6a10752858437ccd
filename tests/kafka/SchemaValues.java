import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.UnknownFieldSet;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/**
 * Draws, writes and reads values with Java's own classes of Avro and Protobuf. Each line of the input is a request in
 * JSON, which a line of the output answers. Values are shown in the shape of Arrow's rows, so that they can be compared:
 * floats as their bits, bytes in hexadecimal digits, decimals as whole numbers, times as numbers.
 */
public class SchemaValues {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final int MOST_ITEMS = 200;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = MAPPER.readTree(line);
            Object answer;
            try {
                Values values = request.has("files") ? new ProtobufValues(request) : new AvroValues(request);
                answer = request.has("bytes") ? read(values, request.get("bytes")) : draw(values, request);
            } catch (RuntimeException refused) {
                answer = Map.of("refused", String.valueOf(refused));
            }
            output.println(MAPPER.writeValueAsString(answer));
        }
    }

    /** What both languages of schemas have. */
    interface Values {
        Object draw(Dice dice);

        byte[] write(Object value, Dice dice) throws Exception;

        Object read(byte[] bytes) throws Exception;

        Object shown(Object value);

        String fingerprint() throws Exception;
    }

    private static Object draw(Values values, JsonNode request) throws Exception {
        Dice dice = new Dice(request.get("seed").asLong(), request.path("filled").asBoolean());
        List<Object> drawn = new ArrayList<>();
        for (int count = request.get("count").asInt(); count > 0; count--) {
            dice.rest = MOST_ITEMS;
            Object value = values.draw(dice);
            String bytes = HexFormat.of().formatHex(values.write(value, dice));
            drawn.add(Map.of("bytes", bytes, "shown", values.shown(value)));
        }
        return Map.of("values", drawn, "fingerprint", values.fingerprint());
    }

    private static Object read(Values values, JsonNode given) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode bytes : given) {
            try {
                answers.add(Map.of("shown", values.shown(values.read(HexFormat.of().parseHex(bytes.asText())))));
            } catch (Exception refused) {
                answers.add(Map.of("refused", String.valueOf(refused)));
            }
        }
        return Map.of("values", answers);
    }

    /** Scalars by chance; the extremes more often than chance has them. */
    static final class Dice extends Random {
        private static final String[] TEXTS = {"", "a", "é", "\u0000", "日本", "😀", "\uffff", "text".repeat(50)};
        /** Whether lists and maps have an item at least, and bytes are also a text. */
        final boolean filled;
        /** How many items the value may still get. */
        private int rest;

        Dice(long seed, boolean filled) {
            super(seed);
            this.filled = filled;
        }

        long number(int bits) {
            long most = bits == 64 ? Long.MAX_VALUE : (1L << (bits - 1)) - 1;
            return switch (nextInt(6)) {
                case 0 -> most;
                case 1 -> -most - 1;
                case 2 -> nextInt(3) - 1;
                case 3 -> nextInt(1 << 14) - (1 << 13);
                default -> nextLong() >> (64 - bits);
            };
        }

        double number() {
            double[] extremes = {0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.MIN_VALUE, -1.5};
            return nextInt(3) == 0 ? extremes[nextInt(extremes.length)] : nextGaussian() * Math.pow(10, nextInt(30));
        }

        String text() {
            return nextInt(2) == 0 ? TEXTS[nextInt(TEXTS.length)] : "n" + nextInt(1000);
        }

        byte[] bytes(int size) {
            byte[] bytes = new byte[size];
            nextBytes(bytes);
            for (int at = 0; filled && at < size; at++) {
                bytes[at] &= 0x7f;
            }
            return bytes;
        }

        int items() {
            int count = Math.min(nextInt(10) == 0 ? nextInt(80) : nextInt(4), rest);
            rest -= count;
            return Math.max(count, filled ? 1 : 0);
        }
    }

    private static String hex(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }

    /** Avro: `writer`, a schema, and `reader`, if it is another. */
    static final class AvroValues implements Values {
        private final Schema writer;
        private final Schema reader;

        AvroValues(JsonNode request) {
            writer = new Schema.Parser().parse(request.get("writer").asText());
            reader = request.has("reader") ? new Schema.Parser().parse(request.get("reader").asText()) : writer;
        }

        public String fingerprint() throws Exception {
            return HexFormat.of().formatHex(SchemaNormalization.parsingFingerprint("CRC-64-AVRO", writer));
        }

        public byte[] write(Object value, Dice dice) throws Exception {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            EncoderFactory factory = new EncoderFactory().configureBlockSize(64);
            // The second one writes the sizes of blocks, too.
            BinaryEncoder encoder = dice.nextBoolean()
                    ? factory.binaryEncoder(bytes, null) : factory.blockingBinaryEncoder(bytes, null);
            new GenericDatumWriter<>(writer).write(value, encoder);
            encoder.flush();
            return bytes.toByteArray();
        }

        public Object read(byte[] bytes) throws Exception {
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
            Object value = new GenericDatumReader<>(writer, reader).read(null, decoder);
            if (!decoder.isEnd()) {
                throw new IllegalArgumentException("bytes are left");
            }
            return value;
        }

        public Object draw(Dice dice) {
            return draw(writer, dice);
        }

        private Object draw(Schema schema, Dice dice) {
            return switch (schema.getType()) {
                case NULL -> null;
                case BOOLEAN -> dice.nextBoolean();
                case INT -> (int) dice.number(32);
                case LONG -> dice.number(64);
                case FLOAT -> (float) dice.number();
                case DOUBLE -> dice.number();
                case STRING -> dice.text();
                case ENUM -> new GenericData.EnumSymbol(
                        schema, schema.getEnumSymbols().get(dice.nextInt(schema.getEnumSymbols().size())));
                case BYTES -> ByteBuffer.wrap(bytes(schema, dice, dice.nextInt(20)));
                case FIXED -> new GenericData.Fixed(schema, bytes(schema, dice, schema.getFixedSize()));
                case UNION -> draw(schema.getTypes().get(dice.nextInt(schema.getTypes().size())), dice);
                case ARRAY -> {
                    List<Object> items = new ArrayList<>();
                    for (int count = dice.items(); count > 0; count--) {
                        items.add(draw(schema.getElementType(), dice));
                    }
                    yield new GenericData.Array<>(schema, items);
                }
                case MAP -> {
                    Map<String, Object> items = new TreeMap<>();
                    for (int count = dice.items(); count > 0; count--) {
                        items.put(dice.text(), draw(schema.getValueType(), dice));
                    }
                    yield items;
                }
                case RECORD -> {
                    GenericData.Record record = new GenericData.Record(schema);
                    for (Schema.Field field : schema.getFields()) {
                        record.put(field.pos(), draw(field.schema(), dice));
                    }
                    yield record;
                }
            };
        }

        private static byte[] bytes(Schema schema, Dice dice, int size) {
            if (!(schema.getLogicalType() instanceof LogicalTypes.Decimal decimal)) {
                return dice.bytes(size);
            }
            BigInteger limit = BigInteger.TEN.pow(decimal.getPrecision());
            BigInteger number = dice.nextInt(3) == 0
                    ? limit.subtract(BigInteger.ONE) : new BigInteger(130, dice).mod(limit);
            byte[] bytes = (dice.nextBoolean() ? number : number.negate()).toByteArray();
            if (schema.getType() == Schema.Type.BYTES) {
                return bytes;
            }
            byte[] whole = new byte[size];
            java.util.Arrays.fill(whole, (byte) (bytes[0] < 0 ? -1 : 0));
            System.arraycopy(bytes, 0, whole, size - bytes.length, bytes.length);
            return whole;
        }

        public Object shown(Object value) {
            return shown(reader, value);
        }

        private Object shown(Schema schema, Object value) {
            return switch (schema.getType()) {
                case FLOAT -> Float.floatToRawIntBits((Float) value);
                case DOUBLE -> Double.doubleToRawLongBits((Double) value);
                case STRING, ENUM -> value.toString();
                case BYTES -> shownBytes(schema, (ByteBuffer) value);
                case FIXED -> shownBytes(schema, ByteBuffer.wrap(((GenericFixed) value).bytes()));
                case UNION -> shownMember(schema, value);
                case ARRAY -> {
                    List<Object> items = new ArrayList<>();
                    ((Iterable<?>) value).forEach(item -> items.add(shown(schema.getElementType(), item)));
                    yield items;
                }
                case MAP -> {
                    Map<String, Object> items = new LinkedHashMap<>();
                    ((Map<?, ?>) value).forEach(
                            (key, item) -> items.put(key.toString(), shown(schema.getValueType(), item)));
                    yield items;
                }
                case RECORD -> {
                    Map<String, Object> fields = new LinkedHashMap<>();
                    for (Schema.Field field : schema.getFields()) {
                        fields.put(field.name(), shown(field.schema(), ((IndexedRecord) value).get(field.pos())));
                    }
                    yield fields;
                }
                default -> value;
            };
        }

        private static Object shownBytes(Schema schema, ByteBuffer bytes) {
            if (schema.getLogicalType() instanceof LogicalTypes.Decimal) {
                byte[] number = HexFormat.of().parseHex(hex(bytes));
                return number.length == 0 ? BigInteger.ZERO : new BigInteger(number);
            }
            return hex(bytes);
        }

        /** As Spark has unions: one type, or two sizes of numbers, is a column; others are fields of a struct. */
        private Object shownMember(Schema union, Object value) {
            if (value == null) {
                return null;
            }
            Schema branch = union.getTypes().get(GenericData.get().resolveUnion(union, value));
            List<Schema> others = union.getTypes().stream().filter(one -> one.getType() != Schema.Type.NULL).toList();
            List<Schema.Type> types = others.stream().map(Schema::getType).toList();
            boolean isPair = types.size() == 2;
            if (types.size() == 1 || isPair && types.containsAll(List.of(Schema.Type.INT, Schema.Type.LONG))) {
                return shown(branch, value);
            }
            if (isPair && types.containsAll(List.of(Schema.Type.FLOAT, Schema.Type.DOUBLE))) {
                return Double.doubleToRawLongBits(((Number) value).doubleValue());
            }
            Map<String, Object> members = new LinkedHashMap<>();
            for (int at = 0; at < others.size(); at++) {
                members.put("member" + at, others.get(at) == branch ? shown(branch, value) : null);
            }
            return members;
        }
    }

    /** Protobuf: `files`, descriptors in base64, each after those that it imports, and `message`, of the last one. */
    static final class ProtobufValues implements Values {
        private final Descriptor message;

        ProtobufValues(JsonNode request) throws Exception {
            List<FileDescriptor> files = new ArrayList<>();
            for (JsonNode file : request.get("files")) {
                FileDescriptorProto proto = FileDescriptorProto.parseFrom(Base64.getDecoder().decode(file.asText()));
                files.add(FileDescriptor.buildFrom(proto, files.toArray(new FileDescriptor[0])));
            }
            message = files.get(files.size() - 1).findMessageTypeByName(request.get("message").asText());
        }

        public String fingerprint() {
            return "";
        }

        public byte[] write(Object value, Dice dice) {
            return ((Message) value).toByteArray();
        }

        public Object read(byte[] bytes) throws Exception {
            return DynamicMessage.parseFrom(message, bytes);
        }

        public Object draw(Dice dice) {
            return draw(message, dice);
        }

        private Message draw(Descriptor of, Dice dice) {
            DynamicMessage.Builder builder = DynamicMessage.newBuilder(of);
            if (isTime(of)) {
                return time(of, dice, builder);
            }
            for (FieldDescriptor field : of.getFields()) {
                if (field.isRepeated()) {
                    drawItems(field, dice, builder);
                } else if (field.isRequired() || of.getOptions().getMapEntry() || dice.nextInt(3) > 0) {
                    builder.setField(field, drawField(field, dice));
                }
            }
            if (dice.nextInt(4) == 0 && !of.getOptions().getMapEntry()) {
                builder.setUnknownFields(unknown(dice));
            }
            return builder.build();
        }

        private void drawItems(FieldDescriptor field, Dice dice, DynamicMessage.Builder builder) {
            Map<Object, Object> items = new LinkedHashMap<>();
            for (int count = dice.items(); count > 0; count--) {
                Object item = drawField(field, dice);
                // Keys of a map are there once.
                items.put(field.isMapField() ? ((Message) item).getField(key(field)) : items.size(), item);
            }
            items.values().forEach(item -> builder.addRepeatedField(field, item));
        }

        private static FieldDescriptor key(FieldDescriptor map) {
            return map.getMessageType().findFieldByNumber(1);
        }

        private Object drawField(FieldDescriptor field, Dice dice) {
            return switch (field.getJavaType()) {
                case INT -> (int) dice.number(32);
                case LONG -> dice.number(64);
                case FLOAT -> (float) dice.number();
                case DOUBLE -> dice.number();
                case BOOLEAN -> dice.nextBoolean();
                case STRING -> dice.text();
                case BYTE_STRING -> ByteString.copyFrom(dice.bytes(dice.nextInt(200)));
                case ENUM -> field.getEnumType().getValues().get(dice.nextInt(field.getEnumType().getValues().size()));
                case MESSAGE -> draw(field.getMessageType(), dice);
            };
        }

        private static UnknownFieldSet unknown(Dice dice) {
            UnknownFieldSet.Field inner = UnknownFieldSet.Field.newBuilder().addVarint(dice.nextLong()).build();
            UnknownFieldSet group = UnknownFieldSet.newBuilder().addField(7, inner).build();
            UnknownFieldSet.Field field = UnknownFieldSet.Field.newBuilder().addGroup(group).addFixed32(1).addFixed64(2)
                    .addLengthDelimited(ByteString.copyFromUtf8(dice.text())).build();
            return UnknownFieldSet.newBuilder().addField(60000 + dice.nextInt(9), field).build();
        }

        private static boolean isTime(Descriptor of) {
            return of.getFullName().equals("google.protobuf.Timestamp") || isDuration(of);
        }

        private static boolean isDuration(Descriptor of) {
            return of.getFullName().equals("google.protobuf.Duration");
        }

        private static Message time(Descriptor of, Dice dice, DynamicMessage.Builder builder) {
            boolean isNegative = dice.nextBoolean();
            int nanos = dice.nextInt(3) == 0 ? 0 : dice.nextInt(1_000_000_000);
            long seconds = dice.nextInt(2) == 0 ? dice.nextInt(100) : dice.nextLong(60_000_000_000L);
            builder.setField(of.findFieldByNumber(1), isNegative ? -seconds : seconds);
            builder.setField(of.findFieldByNumber(2), isNegative && isDuration(of) ? -nanos : nanos);
            return builder.build();
        }

        public Object shown(Object value) {
            Message of = (Message) value;
            Descriptor type = of.getDescriptorForType();
            if (isTime(type)) {
                long seconds = (Long) of.getField(type.findFieldByNumber(1));
                int nanos = (Integer) of.getField(type.findFieldByNumber(2));
                return seconds * 1_000_000 + (isDuration(type) ? nanos / 1000 : Math.floorDiv(nanos, 1000));
            }
            Map<String, Object> fields = new LinkedHashMap<>();
            for (FieldDescriptor field : type.getFields()) {
                fields.put(field.getName(), shownField(of, field));
            }
            return fields;
        }

        private Object shownField(Message of, FieldDescriptor field) {
            if (!field.isRepeated()) {
                boolean isAbsent = field.hasPresence() && !of.hasField(field);
                return isAbsent ? null : shown(field, of.getField(field));
            }
            List<?> items = (List<?>) of.getField(field);
            return field.isMapField() ? shownMap(items) : items.stream().map(item -> shown(field, item)).toList();
        }

        private Object shownMap(List<?> entries) {
            Map<String, Object> items = new LinkedHashMap<>();
            for (Object entry : entries) {
                List<FieldDescriptor> fields = ((Message) entry).getDescriptorForType().getFields();
                FieldDescriptor key = fields.get(0);
                FieldDescriptor value = fields.get(1);
                items.put(shown(key, ((Message) entry).getField(key)).toString(),
                        shown(value, ((Message) entry).getField(value)));
            }
            return items;
        }

        private Object shown(FieldDescriptor field, Object value) {
            return switch (field.getType()) {
                case FLOAT -> Float.floatToRawIntBits((Float) value);
                case DOUBLE -> Double.doubleToRawLongBits((Double) value);
                case UINT32, FIXED32 -> Integer.toUnsignedLong((Integer) value);
                case UINT64, FIXED64 -> new BigInteger(Long.toUnsignedString((Long) value));
                case BYTES -> hex(((ByteString) value).asReadOnlyByteBuffer());
                // The first one of several names of a number.
                case ENUM -> field.getEnumType().findValueByNumber(((EnumValueDescriptor) value).getNumber()).getName();
                case MESSAGE, GROUP -> shown(value);
                default -> value;
            };
        }
    }
}
