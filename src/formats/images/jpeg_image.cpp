// The headers of libjpeg need the others before them.
// clang-format off
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <new>
#include <utility>

#include "formats/images/exif.h"
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

int orientation_of(const jpeg_decompress_struct& jpeg) {
  constexpr std::string_view kXmpStart("http://ns.adobe.com/xap/1.0/\0", 29);
  Orientation orientation;
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view segment(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (segment.starts_with(kExifStart)) orientation.add_exif(segment);
    if (segment.starts_with(kXmpStart)) orientation.add_xmp(segment);
  }
  return orientation.number();
}

// Chooses the colors and the scale of the result. The brightness that color files contain is not the grey of
// their rounded colors.
void set_jpeg_output(jpeg_decompress_struct& jpeg, const ImageOptions& options, int orientation) {
  const bool is_cmyk = jpeg.num_components == 4;
  const bool is_grey = jpeg.num_components == 1 && options.channels != 3;
  jpeg.out_color_space = is_cmyk ? JCS_CMYK : is_grey ? JCS_GRAYSCALE : JCS_RGB;
  auto [height, width] = options.wanted_size;
  if (height <= 0 || width <= 0) return;
  if (exchanges_sides(orientation)) std::swap(height, width);
  const auto scaled = [&](JDIMENSION size) { return (std::int64_t{size} * jpeg.scale_num + 7) / 8; };
  jpeg.scale_denom = 8;
  for (jpeg.scale_num = 1; jpeg.scale_num < 8; jpeg.scale_num *= 2)
    if (scaled(jpeg.image_height) >= height && scaled(jpeg.image_width) >= width) break;
}

// Returns a * b / 255, rounded to the nearest.
std::uint8_t scaled_product(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

// Replaces CMYK by RGB. Adobe's programs store the values inverted.
void convert_from_cmyk(Image& image, bool is_inverted) {
  const auto count = static_cast<std::size_t>(image.width * image.height);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* const pixel = &image.pixels[4 * i];
    const auto ink = [&](std::size_t channel) {
      return is_inverted ? 255U - pixel[channel] : pixel[channel];
    };
    const unsigned light = 255 - ink(3), cyan = ink(0), magenta = ink(1), yellow = ink(2);
    image.pixels[3 * i] = static_cast<std::uint8_t>(light - scaled_product(cyan, light));
    image.pixels[3 * i + 1] = static_cast<std::uint8_t>(light - scaled_product(magenta, light));
    image.pixels[3 * i + 2] = static_cast<std::uint8_t>(light - scaled_product(yellow, light));
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
  if (image.channels == 4) convert_from_cmyk(image, state.jpeg.saw_Adobe_marker != FALSE);
  if (source.options.channels == 1 && image.channels == 3) convert_to_grey(image);
  return upright(std::move(image), orientation);
}

}  // namespace kindling
