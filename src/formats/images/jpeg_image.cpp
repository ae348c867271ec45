// The headers of libjpeg need the others before them.
// clang-format off
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <cstring>
#include <new>
#include <utility>

#include "formats/images/image_codecs.h"

namespace kindling {
namespace {

// Each block of 8 x 8 values takes at least one bit, and the largest sampling has 16 such blocks of
// brightness for each pair of color blocks.
constexpr std::int64_t kMaxJpegPixelsPerByte = 8 * 64;
// A scan of a progressive file may be a few bytes that cost a pass over the whole image.
constexpr int kMaxJpegScans = 500;

// libjpeg reports errors by a function that must not return. The functions that call it have no objects with
// destructors, and all memory belongs to objects outside of them.
struct JpegState {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  const unsigned char* bytes = nullptr;
  unsigned long size = 0;
  unsigned char* pixels = nullptr;
  char message[JMSG_LENGTH_MAX] = "";
  std::jmp_buf on_error;

  JpegState() = default;
  ~JpegState() { jpeg_destroy_decompress(&jpeg); }
  JpegState(const JpegState&) = delete;
  JpegState& operator=(const JpegState&) = delete;
};

[[noreturn]] void handle_jpeg_error(j_common_ptr common) {
  auto* state = static_cast<JpegState*>(common->client_data);
  common->err->format_message(common, state->message);
  std::longjmp(state->on_error, 1);
}

// Data that end too early are warnings for libjpeg, which makes up the rest of the image.
void handle_jpeg_message(j_common_ptr common, int level) {
  const int code = common->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) handle_jpeg_error(common);
}

void check_jpeg_scans(j_common_ptr common) {
  auto* state = static_cast<JpegState*>(common->client_data);
  if (state->jpeg.input_scan_number <= kMaxJpegScans) return;
  std::snprintf(state->message, sizeof state->message, "more than %d scans", kMaxJpegScans);
  std::longjmp(state->on_error, 1);
}

void read_jpeg_header(JpegState* state) {
  jpeg_create_decompress(&state->jpeg);
  state->jpeg.client_data = state;
  state->jpeg.progress = &state->progress;
  jpeg_save_markers(&state->jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_mem_src(&state->jpeg, state->bytes, state->size);
  jpeg_read_header(&state->jpeg, TRUE);
}

void start_jpeg(JpegState* state) { jpeg_start_decompress(&state->jpeg); }

void read_jpeg_rows(JpegState* state) {
  jpeg_decompress_struct* jpeg = &state->jpeg;
  const std::size_t row_bytes =
      std::size_t{jpeg->output_width} * static_cast<std::size_t>(jpeg->output_components);
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = state->pixels + jpeg->output_scanline * row_bytes;
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_decompress(jpeg);
}

// Returns false if libjpeg has reported an error.
bool jpeg_succeeds(JpegState* state, void (*step)(JpegState*)) {
  if (setjmp(state->on_error) != 0) return false;
  step(state);
  return true;
}

constexpr std::string_view kExifStart("Exif\0\0", 6);
constexpr std::uint32_t kOrientationTag = 0x0112, kShortType = 3;

// The TIFF structure in an EXIF block: numbers in the byte order that it names.
struct TiffBlock {
  std::string_view bytes;
  bool is_big_endian = false;

  bool holds(std::size_t at, std::size_t size) const {
    return at <= bytes.size() && bytes.size() - at >= size;
  }
  // Both return 0 outside of the block.
  std::uint32_t number16(std::size_t at) const {
    if (!holds(at, 2)) return 0;
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[at + i]));
    };
    return is_big_endian ? byte(0) << 8 | byte(1) : byte(1) << 8 | byte(0);
  }
  std::uint32_t number32(std::size_t at) const {
    if (!holds(at, 4)) return 0;
    const std::uint32_t first = number16(at), second = number16(at + 2);
    return is_big_endian ? first << 16 | second : second << 16 | first;
  }
};

// Returns the orientation 1 to 8 of an EXIF block, the content of an APP1 segment; 1 if there is none or the
// block is damaged, as viewers do.
int exif_orientation(std::string_view segment) {
  if (!segment.starts_with(kExifStart)) return 1;
  segment.remove_prefix(kExifStart.size());
  if (!segment.starts_with("II") && !segment.starts_with("MM")) return 1;
  const TiffBlock block{segment, segment[0] == 'M'};
  const std::size_t directory = block.number32(4);
  const std::size_t entries = block.number16(directory);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (!block.holds(entry, 12)) return 1;
    if (block.number16(entry) != kOrientationTag) continue;
    const std::uint32_t value = block.number16(entry + 8);
    return block.number16(entry + 2) == kShortType && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

// True if upright() exchanges width and height.
bool exchanges_sides(int orientation) { return orientation >= 5; }

// Returns the image upright: mirrored and rotated as the orientation 1 to 8 says.
Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  // The source of the pixel (x, y) of the result: exchanged first, then mirrored.
  const bool exchanged = exchanges_sides(orientation);
  const bool mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{.width = exchanged ? image.height : image.width,
            .height = exchanged ? image.width : image.height,
            .channels = image.channels,
            .pixels = std::vector<std::uint8_t>(image.pixels.size())};
  const auto channels = static_cast<std::size_t>(image.channels);
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.height; ++y)
    for (std::int64_t x = 0; x < out.width; ++x, to += channels) {
      std::int64_t from_x = exchanged ? y : x, from_y = exchanged ? x : y;
      if (mirrors_x) from_x = image.width - 1 - from_x;
      if (mirrors_y) from_y = image.height - 1 - from_y;
      std::memcpy(to, &image.pixels[static_cast<std::size_t>(from_y * image.width + from_x) * channels],
                  channels);
    }
  return out;
}

int orientation_of(const jpeg_decompress_struct& jpeg) {
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view segment(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (const int orientation = exif_orientation(segment); orientation != 1) return orientation;
  }
  return 1;
}

// Chooses the colors and the scale of the result.
void set_jpeg_output(jpeg_decompress_struct& jpeg, const ImageOptions& options, int orientation) {
  const bool is_cmyk = jpeg.num_components == 4;
  const bool is_grey = options.channels == 1 || (options.channels == 0 && jpeg.num_components == 1);
  jpeg.out_color_space = is_cmyk ? JCS_CMYK : is_grey ? JCS_GRAYSCALE : JCS_RGB;
  auto [height, width] = options.wanted_size;
  if (height <= 0 || width <= 0) return;
  if (exchanges_sides(orientation)) std::swap(height, width);
  const auto scaled = [&](JDIMENSION size) { return (std::int64_t{size} * jpeg.scale_num + 7) / 8; };
  jpeg.scale_denom = 8;
  for (jpeg.scale_num = 1; jpeg.scale_num < 8; jpeg.scale_num *= 2)
    if (scaled(jpeg.image_height) >= height && scaled(jpeg.image_width) >= width) break;
}

// Replaces CMYK by RGB. Adobe's programs store the values inverted.
void convert_from_cmyk(Image& image, bool is_inverted) {
  const auto count = static_cast<std::size_t>(image.width * image.height);
  for (std::size_t i = 0; i < count; ++i) {
    const auto ink = [&](std::size_t channel) -> unsigned {
      const unsigned value = image.pixels[4 * i + channel];
      return is_inverted ? value : 255 - value;
    };
    const unsigned light = ink(3), red = ink(0), green = ink(1), blue = ink(2);
    image.pixels[3 * i] = static_cast<std::uint8_t>(red * light / 255);
    image.pixels[3 * i + 1] = static_cast<std::uint8_t>(green * light / 255);
    image.pixels[3 * i + 2] = static_cast<std::uint8_t>(blue * light / 255);
  }
  image.pixels.resize(3 * count);
  image.channels = 3;
}

}  // namespace

bool can_read_jpeg() noexcept { return true; }

Image decode_jpeg(const ImageSource& source) {
  JpegState state;
  state.jpeg.err = jpeg_std_error(&state.errors);
  state.jpeg.client_data = &state;
  state.errors.error_exit = &handle_jpeg_error;
  state.errors.emit_message = &handle_jpeg_message;
  state.progress.progress_monitor = &check_jpeg_scans;
  state.bytes = reinterpret_cast<const unsigned char*>(source.bytes.data());
  state.size = source.bytes.size();
  const auto run = [&](void (*step)(JpegState*)) {
    if (!jpeg_succeeds(&state, step)) refuse_image(source, "JPEG", state.message);
  };
  run(&read_jpeg_header);
  check_image_size(source, state.jpeg.image_width, state.jpeg.image_height, kMaxJpegPixelsPerByte);
  const int orientation = orientation_of(state.jpeg);
  set_jpeg_output(state.jpeg, source.options, orientation);
  run(&start_jpeg);

  Image image{.width = state.jpeg.output_width,
              .height = state.jpeg.output_height,
              .channels = state.jpeg.output_components,
              .pixels = {}};
  image.pixels.resize(static_cast<std::size_t>(image.width * image.height * image.channels));
  state.pixels = image.pixels.data();
  run(&read_jpeg_rows);
  if (image.channels == 4) {
    convert_from_cmyk(image, state.jpeg.saw_Adobe_marker != FALSE);
    if (source.options.channels == 1) convert_to_grey(image);
  }
  return upright(std::move(image), orientation);
}

}  // namespace kindling
