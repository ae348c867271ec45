#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/formats/arrow.h"

namespace kindling {
namespace {

// A column of one batch, with the memory that its structures name.
struct Column {
  std::string format{}, name{};
  std::vector<std::shared_ptr<const std::string>> memory{};  // shared by copies
  std::vector<const void*> buffers{};
  std::int64_t offset = 0, num_rows = 0;
  std::deque<Column> dictionary{};  // one or none
  ArrowSchema schema_values{}, *dictionary_schema = nullptr;
  ArrowArray array_values{};

  template <class Value>
  Column& with(const std::vector<Value>& values) {
    return with_text({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)});
  }
  // A bit per row; nothing: no row is null.
  Column& with_bits(const std::string& bits) {
    std::string bytes(bits.size() / 8 + 1, '\0');
    for (std::size_t i = 0; i < bits.size(); ++i)
      if (bits[i] == '1') bytes[i / 8] = static_cast<char>(bytes[i / 8] | 1 << i % 8);
    with_text(bytes);
    if (bits.empty()) buffers.back() = nullptr;
    return *this;
  }
  Column& with_text(const std::string& text) {
    memory.push_back(std::make_shared<const std::string>(text));
    buffers.push_back(memory.back()->data());
    return *this;
  }

  ArrowSchema* schema() {
    schema_values = {};
    schema_values.format = format.c_str();
    schema_values.name = name.c_str();
    if (!dictionary.empty()) schema_values.dictionary = dictionary.front().schema();
    return &schema_values;
  }
  ArrowArray* array() {
    array_values = {};
    array_values.length = num_rows;
    array_values.null_count = -1;
    array_values.offset = offset;
    array_values.n_buffers = static_cast<std::int64_t>(buffers.size());
    array_values.buffers = buffers.data();
    if (!dictionary.empty()) array_values.dictionary = dictionary.front().array();
    return &array_values;
  }
};

using Batch = std::deque<Column>;

// A stream of batches, which counts what is released.
class Stream {
 public:
  explicit Stream(std::deque<Batch> batches) : batches_(std::move(batches)) {
    stream_ = {
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = [](ArrowArrayStream*) -> const char* { return "the disk is on fire"; },
        .release = [](ArrowArrayStream* stream) { ++of(stream).num_released_, stream->release = nullptr; },
        .private_data = this};
  }
  ArrowArrayStream* get() { return &stream_; }
  std::int64_t num_open() const { return num_made_ - num_released_; }  // with the stream itself
  void fail_at(std::size_t batch) { failing_ = batch; }
  void begin_batches_at(std::int64_t offset) { offset_ = offset; }
  void set_rows_of_batch(const std::string& bits) { rows_ = bits; }

 private:
  static Stream& of(const ArrowArrayStream* stream) { return *static_cast<Stream*>(stream->private_data); }

  static int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
    Stream& self = of(stream);
    for (Column& column : self.batches_.front()) self.schemas_.push_back(column.schema());
    *out = {};
    out->format = "+s";
    out->n_children = static_cast<std::int64_t>(self.schemas_.size());
    out->children = self.schemas_.data();
    out->release = [](ArrowSchema* schema) { ++static_cast<Stream*>(schema->private_data)->num_released_; };
    out->private_data = &self;
    ++self.num_made_;
    return 0;
  }
  static int get_next(ArrowArrayStream* stream, ArrowArray* out) {
    Stream& self = of(stream);
    *out = {};
    if (self.next_ == self.failing_) return 5;
    if (self.next_ == self.batches_.size()) return 0;
    Batch& batch = self.batches_[self.next_++];
    self.arrays_.clear();
    for (Column& column : batch) self.arrays_.push_back(column.array());
    self.parent_buffers_ = {self.rows_.empty() ? nullptr : self.rows_.data()};
    out->length = batch.front().num_rows;
    out->offset = self.offset_;
    out->n_buffers = 1;
    out->n_children = static_cast<std::int64_t>(batch.size());
    out->buffers = self.parent_buffers_.data();
    out->children = self.arrays_.data();
    out->release = [](ArrowArray* array) { ++static_cast<Stream*>(array->private_data)->num_released_; };
    out->private_data = &self;
    ++self.num_made_;
    return 0;
  }

  std::deque<Batch> batches_;
  ArrowArrayStream stream_{};
  std::vector<ArrowSchema*> schemas_{};
  std::vector<ArrowArray*> arrays_{};
  std::array<const void*, 1> parent_buffers_{};
  std::string rows_{};
  std::size_t next_ = 0, failing_ = SIZE_MAX;
  std::int64_t num_made_ = 1, num_released_ = 0, offset_ = 0;
};

Column column(const std::string& format, std::int64_t num_rows, const std::string& name = "x") {
  Column column;
  column.format = format;
  column.name = name;
  column.num_rows = num_rows;
  return column;
}

std::vector<std::string> texts_of(const TableColumn& column) {
  std::vector<std::string> texts;
  for (const std::int32_t code : column.codes)
    texts.push_back(code < 0 ? "-" : column.categories[static_cast<std::size_t>(code)]);
  return texts;
}

TableColumn read_one(Column column) {
  Stream stream({Batch{std::move(column)}});
  Table table = read_arrow(stream.get());
  EXPECT_EQ(stream.num_open(), 0);
  return std::move(table.columns.at(0));
}

std::string refusal(Stream& stream) {
  try {
    read_arrow(stream.get(), "houses");
  } catch (const DataError& error) {
    EXPECT_EQ(stream.num_open(), 0);
    return error.what();
  }
  return "";
}

std::string refusal(Column column) {
  Stream stream({Batch{std::move(column)}});
  return refusal(stream);
}

TEST(ArrowTables, HaveNumbers) {
  Column integers = column("l", 3);
  integers.with_bits("101").with(std::vector<std::int64_t>{5, 0, -7});
  const TableColumn read = read_one(std::move(integers));
  EXPECT_EQ(read.kind, ColumnKind::number);
  EXPECT_EQ(read.numbers[0], 5);
  EXPECT_TRUE(read.is_missing(1));
  EXPECT_EQ(read.numbers[2], -7);
  Column bytes = column("C", 2);
  bytes.with_bits("").with(std::vector<std::uint8_t>{200, 1});
  EXPECT_EQ(read_one(std::move(bytes)).numbers, (std::vector<double>{200, 1}));
  Column halves = column("e", 3);
  halves.with_bits("").with(std::vector<std::uint16_t>{0x3e00, 0xc000, 0x0001});
  EXPECT_EQ(read_one(std::move(halves)).numbers, (std::vector<double>{1.5, -2, 0x1p-24}));
  Column decimals = column("d:10,2", 2);
  decimals.with_bits("").with(std::vector<std::int64_t>{12345, 0, -12345, -1});
  EXPECT_EQ(read_one(std::move(decimals)).numbers, (std::vector<double>{123.45, -123.45}));
}

// A slice has an offset, in the columns or in the batch; a batch may have null rows of its own.
TEST(ArrowTables, AreSlices) {
  Column sliced = column("s", 2);
  sliced.offset = 1;
  sliced.with_bits("1101").with(std::vector<std::int16_t>{1, 2, 3, 4});
  Column texts = column("u", 2, "t");
  texts.with_bits("").with(std::vector<std::int32_t>{0, 1, 1, 3, 6}).with_text("abbccc");
  Stream stream({Batch{sliced, texts}});
  stream.begin_batches_at(1);
  const Table table = read_arrow(stream.get());
  EXPECT_TRUE(table.columns[0].is_missing(0));
  EXPECT_EQ(table.columns[0].numbers[1], 4);
  EXPECT_EQ(texts_of(table.columns[1]), (std::vector<std::string>{"", "bb"}));

  Column numbers = column("l", 3);
  numbers.with_bits("").with(std::vector<std::int64_t>{1, 2, 3});
  Stream with_nulls({Batch{std::move(numbers)}});
  with_nulls.set_rows_of_batch("\x05");
  const Table rows = read_arrow(with_nulls.get());
  EXPECT_FALSE(rows.columns[0].is_missing(0));
  EXPECT_TRUE(rows.columns[0].is_missing(1));
}

TEST(ArrowTables, HaveTextsBooleansAndTimes) {
  struct View {
    std::int32_t size;
    std::array<char, 4> start;
    std::int32_t buffer, offset;
  };
  View shorter{.size = 5, .start = {'h', 'e', 'l', 'l'}, .buffer = 'o', .offset = 0};
  const View longer{.size = 14, .start = {'l', 'o', 'n', 'g'}, .buffer = 0, .offset = 2};
  Column views = column("vu", 2);
  views.with_bits("")
      .with(std::vector<View>{shorter, longer})
      .with_text("..longer than 12")
      .with(std::vector<std::int64_t>{16});
  EXPECT_EQ(texts_of(read_one(std::move(views))), (std::vector<std::string>{"hello", "longer than 12"}));
  Column booleans = column("b", 3);
  booleans.with_bits("110").with_bits("100");
  EXPECT_EQ(texts_of(read_one(std::move(booleans))), (std::vector<std::string>{"true", "false", "-"}));
  Column days = column("tdD", 2);
  days.with_bits("").with(std::vector<std::int32_t>{20'786, -1});
  EXPECT_EQ(texts_of(read_one(std::move(days))), (std::vector<std::string>{"2026-11-29", "1969-12-31"}));
  Column times = column("tsu:UTC", 2);
  times.with_bits("").with(std::vector<std::int64_t>{1'795'966'200'250'000, -1});
  EXPECT_EQ(texts_of(read_one(std::move(times))),
            (std::vector<std::string>{"2026-11-29T15:30:00.25Z", "1969-12-31T23:59:59.999999Z"}));
}

TEST(ArrowTables, HaveCategoriesOfEachBatch) {
  const auto batch = [](const std::string& texts, const std::vector<std::int8_t>& codes) {
    Column coded = column("c", static_cast<std::int64_t>(codes.size()));
    coded.with_bits("").with(codes);
    Column& values = coded.dictionary.emplace_back(column("u", static_cast<std::int64_t>(texts.size())));
    std::vector<std::int32_t> ends{0};
    for (std::size_t i = 1; i <= texts.size(); ++i) ends.push_back(static_cast<std::int32_t>(i));
    values.with_bits("").with(ends).with_text(texts);
    return Batch{std::move(coded)};
  };
  std::deque<Batch> batches;
  batches.push_back(batch("ba", {0, 1, 0}));
  batches.push_back(batch("cb", {0, 1}));
  Stream stream(std::move(batches));
  const Table table = read_arrow(stream.get());
  EXPECT_EQ(table.num_rows, 5U);
  EXPECT_EQ(table.columns[0].categories, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(texts_of(table.columns[0]), (std::vector<std::string>{"b", "a", "b", "c", "b"}));
  std::deque<Batch> wrong;
  wrong.push_back(batch("ba", {0, 2}));
  Stream unknown(std::move(wrong));
  EXPECT_EQ(refusal(unknown),
            "houses, column 'x', row 2: the code of the category is 2; expected: codes below 2");
}

TEST(ArrowTables, HaveRowNumbersOfPandas) {
  Column index = column("l", 2, "__index_level_0__");
  index.with_bits("").with(std::vector<std::int64_t>{7, 9});
  Stream stream({Batch{std::move(index)}});
  const Table table = read_arrow(stream.get());
  EXPECT_EQ(table.row_name, "row");
  EXPECT_EQ(texts_of(table.columns[0]), (std::vector<std::string>{"7", "9"}));
  Column other = column("l", 2, "row"), again = column("l", 2, "__index_level_0__");
  for (Column* const one : {&other, &again}) one->with_bits("").with(std::vector<std::int64_t>{1, 2});
  Stream both({Batch{other, again}});
  EXPECT_EQ(read_arrow(both.get()).row_name, "row_");
}

TEST(ArrowTables, RefuseWhatATableCannotHold) {
  EXPECT_EQ(refusal(column("+l", 1)),
            "houses, column 'x': its Arrow type is '+l', which has several values per row; expected: "
            "numbers, texts, "
            "categories, booleans or times; drop the column, or make one column per value");
  EXPECT_NE(refusal(column("z", 1)).find("its Arrow type is 'z'; expected"), std::string::npos);
  Column infinite = column("g", 2);
  infinite.with_bits("").with(std::vector<double>{1, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(refusal(std::move(infinite)),
            "houses, column 'x', row 2: the number is infinite; expected: a finite number");
  Column large = column("L", 1);
  large.with_bits("").with(std::vector<std::uint64_t>{(std::uint64_t{1} << 53) + 1});
  EXPECT_EQ(refusal(std::move(large)),
            "houses, column 'x', row 1: the integer is larger than 2^53, which float64 cannot hold exactly; "
            "expected: "
            "smaller integers; convert the column to text, or to float64 unless it identifies rows");
  for (const std::int64_t day :
       {std::int64_t{2'932'897}, std::int64_t{-719'163}, std::int64_t{2'147'483'647}}) {
    Column days = column("tdD", 2);
    days.with_bits("").with(std::vector<std::int32_t>{0, static_cast<std::int32_t>(day)});
    EXPECT_EQ(refusal(std::move(days)),
              "houses, column 'x', row 2: the date is infinite, or outside of the years 1 to 9999; expected: "
              "a date, or "
              "null");
  }
  for (const std::int64_t time :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    Column times = column("tsu:", 1);
    times.with_bits("").with(std::vector<std::int64_t>{time});
    EXPECT_NE(refusal(std::move(times)).find("row 1: the date is infinite"), std::string::npos);
  }
  Stream twice({Batch{column("l", 1), column("g", 1)}});
  EXPECT_EQ(refusal(twice), "houses: two columns have the name 'x'; expected: names that differ");
  Column numbers = column("l", 1);
  numbers.with_bits("").with(std::vector<std::int64_t>{1});
  Stream failing({Batch{std::move(numbers)}});
  failing.fail_at(1);
  EXPECT_EQ(refusal(failing),
            "houses: the stream fails with error 5: the disk is on fire; expected: batches of rows");
  EXPECT_EQ(refusal(failing), "houses: the stream has been released; expected: a new stream");
}

}  // namespace
}  // namespace kindling
