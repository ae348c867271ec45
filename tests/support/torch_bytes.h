#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Files of torch.save, piece by piece, also such as no torch.save would write.
namespace kindling::torch_bytes {

inline std::string little(std::uint64_t number, std::size_t size) {
  std::string bytes;
  for (; size > 0; --size, number >>= 8) bytes += static_cast<char>(number & 0xff);
  return bytes;
}

// --- the zip archive ---
struct ZipPart {
  std::string name, bytes;
  std::uint64_t method = 0, flags = 0;
  std::uint64_t directory_size = bytes.size();  // what the directory says
  bool in_64 = false;                           // size and offset in the zip64 field
};

inline std::uint64_t crc_of(std::string_view bytes) {
  return ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

struct ZipEnd {
  bool in_64 = false;  // as PyTorch writes it
  std::string behind{};
};

inline std::string directory_entry(const ZipPart& part, std::uint64_t offset) {
  const std::string size = part.in_64 ? little(0xffffffff, 4) : little(part.directory_size, 4);
  const std::string extra = part.in_64 ? little(1, 2) + little(24, 2) + little(part.directory_size, 8) +
                                             little(part.directory_size, 8) + little(offset, 8)
                                       : "";
  return "PK\1\2" + little(0, 4) + little(part.flags, 2) + little(part.method, 2) + little(0, 4) +
         little(crc_of(part.bytes), 4) + size + size + little(part.name.size(), 2) + little(extra.size(), 2) +
         little(0, 10) + (part.in_64 ? little(0xffffffff, 4) : little(offset, 4)) + part.name + extra;
}

inline std::string zip_of(const std::vector<ZipPart>& parts, const ZipEnd& end = {}) {
  std::string bytes, directory;
  for (const ZipPart& part : parts) {
    directory += directory_entry(part, bytes.size());
    bytes += "PK\3\4" + little(0, 2) + little(part.flags, 2) + little(part.method, 2) + little(0, 16) +
             little(part.name.size(), 2) + little(0, 2) + part.name + part.bytes;
  }
  const std::uint64_t begin = bytes.size(), at = begin + directory.size(), count = parts.size();
  bytes += directory;
  if (end.in_64)
    bytes += "PK\6\6" + little(44, 8) + little(0, 12) + little(count, 8) + little(count, 8) +
             little(directory.size(), 8) + little(begin, 8) + "PK\6\7" + little(0, 4) + little(at, 8) +
             little(1, 4);
  return bytes + "PK\5\6" + little(0, 4) + little(end.in_64 ? 0xffff : count, 2) +
         little(end.in_64 ? 0xffff : count, 2) + little(end.in_64 ? 0xffffffff : directory.size(), 4) +
         little(end.in_64 ? 0xffffffff : begin, 4) + little(0, 2) + end.behind;
}

inline std::string deflated(const std::string& bytes) {
  std::string out(::compressBound(bytes.size()) + 64, '\0');
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// An archive with deflated entries, as other programs write it.
inline std::string deflated_zip_of(const std::vector<ZipPart>& parts) {
  std::string bytes, directory;
  for (const ZipPart& part : parts) {
    const std::string small = deflated(part.bytes);
    const std::string fields = little(0, 2) + little(8, 2) + little(0, 4) + little(crc_of(part.bytes), 4) +
                               little(small.size(), 4) + little(part.directory_size, 4) +
                               little(part.name.size(), 2) + little(0, 2);
    directory += "PK\1\2" + little(0, 4) + fields + little(0, 10) + little(bytes.size(), 4) + part.name;
    bytes += "PK\3\4" + little(0, 2) + fields + part.name + small;
  }
  const std::uint64_t begin = bytes.size();
  return bytes + directory + "PK\5\6" + little(0, 4) + little(parts.size(), 2) + little(parts.size(), 2) +
         little(directory.size(), 4) + little(begin, 4) + little(0, 2);
}

// --- the pickle ---
inline std::string text(std::string_view text) { return "X" + little(text.size(), 4) + std::string(text); }
inline std::string integer(std::int64_t number) {
  return "\x8a\x08" + little(static_cast<std::uint64_t>(number), 8);
}
inline std::string integers(const std::vector<std::int64_t>& numbers) {
  std::string all = "(";
  for (const std::int64_t number : numbers) all += integer(number);
  return all + "t";
}
inline std::string name(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline const std::string kEmptyOrderedDict = name("collections", "OrderedDict") + ")R";

struct FakeTensor {
  std::string type = "FloatStorage", key = "0";
  std::int64_t values = 6, offset = 0;
  std::vector<std::int64_t> sizes = {2, 3}, strides = {3, 1};
};
inline std::string pickled_tensor(const FakeTensor& tensor = {}) {
  return name("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + name("torch", tensor.type) +
         text(tensor.key) + text("cpu") + integer(tensor.values) + "tQ" + integer(tensor.offset) +
         integers(tensor.sizes) + integers(tensor.strides) + "\x89" + kEmptyOrderedDict + "tR";
}
// A dict of one entry.
inline std::string dict(std::string_view key, const std::string& value) {
  return "}" + text(key) + value + "s";
}

inline std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }

// A file with this pickle and six float32 from 0 on as its storage "0".
inline std::vector<ZipPart> parts_of(const std::string& pickle) {
  const float values[] = {0, 1, 2, 3, 4, 5};
  return {{.name = "x/data.pkl", .bytes = pickle},
          {.name = "x/data/0", .bytes = std::string(reinterpret_cast<const char*>(values), sizeof(values))}};
}
inline std::string torch_file_of(const std::string& body) { return zip_of(parts_of(pickle(body))); }

// A file of PyTorch before 1.6 with this pickle and six float32 from 0 on as its storage "0".
inline std::string old_torch_file_of(const std::string& pickled) {
  const std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  return magic + pickle(integer(1001)) + pickle("}") + pickled + pickle("]" + text("0") + "a") +
         little(6, 8) + parts_of("")[1].bytes;
}

// A TorchScript archive with this pickle and the source code of the module "__torch__.m".
inline std::string script_file_of(const std::string& pickled, const std::string& code) {
  std::vector<ZipPart> parts = parts_of(pickled);
  parts.push_back({.name = "x/constants.pkl", .bytes = pickle(")")});
  parts.push_back({.name = "x/code/__torch__/m.py", .bytes = code});
  return zip_of(parts);
}
inline const std::string kScriptCode =
    "class M(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = [\"b\", ]\n  w : Tensor\n";
// An object of M with attributes, which are alternating texts and values.
inline std::string script_module(const std::string& attributes) {
  return name("__torch__.m", "M") + ")\x81}(" + attributes + "ub";
}

}  // namespace kindling::torch_bytes
