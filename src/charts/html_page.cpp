#include "charts/html_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/base64.h"
#include "base/joined.h"
#include "charts/heat_map.h"
#include "charts/markup.h"
#include "kindling/base/json.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {

// The files in src/charts/page.
extern const std::string_view kPageScript, kPageStyle;

namespace {

constexpr int kDrawnDigits = 6;  // of the values in a page; a screen shows four

std::string tag(std::string_view name, const std::string& content, std::string_view attributes = "") {
  std::string text = "<";
  text.append(name).append(attributes.empty() ? "" : " ").append(attributes).append(">");
  return text.append(content).append("</").append(name).append(">");
}

// Returns a JSON string for a script element, which "</script>" and "<!--" would end.
std::string script_string(std::string_view text) {
  std::string escaped;
  for (const char c : json_string(one_line(text))) {
    if (c == '<')
      escaped += "\\u003c";
    else
      escaped += c;
  }
  return escaped;
}

// The quickest notation with so many digits, which JSON knows.
std::string script_number(double number) {
  if (!std::isfinite(number)) return "null";
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::general, kDrawnDigits)
          .ptr;
  return {text.data(), end};
}

std::string script_numbers(const std::vector<double>& numbers) {
  return '[' + joined(numbers, ",", script_number) + ']';
}

// Steps are whole numbers, whose digits all count.
std::string script_places(const std::vector<double>& numbers) {
  return '[' + joined(numbers, ",", json_number) + ']';
}

std::string script_curve(const Curve& curve) {
  return "{\"label\":" + script_string(curve.label) + (curve.is_background ? ",\"thin\":true" : "") +
         (curve.is_scatter ? ",\"points\":true" : "") + ",\"x\":" + script_places(curve.x) +
         ",\"y\":" + script_numbers(curve.y) + "}";
}

std::string script_chart(const Chart& chart) {
  return "{\"title\":" + script_string(chart.title) + ",\"xlabel\":" + script_string(chart.xlabel) +
         ",\"log\":" + (chart.yscale == AxisScale::log ? "true" : "false") +
         (chart.has_whole_x ? ",\"whole\":true" : "") + ",\"curves\":[" +
         joined(chart.curves, ",", script_curve) + "]}";
}

// A drawing within HTML has no name space, and so the page contains no address.
std::string inline_svg(const Chart& chart) {
  std::string svg = to_svg(chart);
  constexpr std::string_view kNameSpace = " xmlns=\"http://www.w3.org/2000/svg\"";
  return svg.erase(svg.find(kNameSpace), kNameSpace.size());
}

// Writes the parts of a page; collects the data of its charts for the script.
class PartWriter {
 public:
  std::string operator()(const PageCharts& part) {
    std::string figures;
    for (const Chart& chart : part.charts) {
      script_data_ += (script_data_.empty() ? "" : ",\n") + script_chart(chart);
      figures += "<figure class=\"chart\" data-chart=\"" + std::to_string(num_charts_++) + "\">" +
                 tag("figcaption", markup_text(chart.title)) + tag("noscript", inline_svg(chart)) +
                 "</figure>\n";
    }
    return "<div class=\"charts\">\n" + figures + "</div>\n";
  }

  std::string operator()(const PageFacts& part) const {
    std::string facts;
    for (const auto& [name, value] : part.facts)
      facts += "<div>" + tag("dt", markup_text(name)) + tag("dd", markup_text(value)) + "</div>\n";
    return "<dl>\n" + facts + "</dl>\n";
  }

  std::string operator()(const PageTable& part) const {
    const auto line = [&](std::string_view cell, const std::vector<std::string>& cells, bool is_marked) {
      std::string text;
      for (std::size_t i = 0; i < cells.size(); ++i)
        text += tag(cell, markup_text(cells[i]), i < part.num_text_columns ? "class=\"text\"" : "");
      return tag("tr", text, is_marked ? "class=\"marked\"" : "") + "\n";
    };
    std::string rows;
    for (std::size_t i = 0; i < part.rows.size(); ++i) rows += line("td", part.rows[i], i == part.marked_row);
    return std::string("<div class=\"scroll\" tabindex=\"0\"><table class=\"") +
           (part.num_text_columns == part.titles.size() ? "texts" : "numbers") + "\">\n<thead>" +
           line("th", part.titles, false) + "</thead>\n<tbody>" + rows + "</tbody>\n</table></div>\n";
  }

  std::string operator()(const PageMatrix& part) const {
    std::string rows = tag("td", "");
    std::size_t num_columns = 0;
    for (const auto& row : part.cells) num_columns = std::max(num_columns, row.size());
    const auto name = [&](std::size_t index) {
      return tag("th", index < part.names.size() ? markup_text(part.names[index]) : std::to_string(index));
    };
    for (std::size_t column = 0; column < num_columns; ++column) rows += name(column);
    rows = tag("tr", rows) + "\n";
    for (std::size_t row = 0; row < part.cells.size(); ++row)
      rows += tag("tr", name(row) + matrix_cells(part.cells[row])) + "\n";
    return "<div class=\"scroll\" tabindex=\"0\"><table class=\"matrix\"><caption>rows: " +
           markup_text(part.rows) + ", columns: " + markup_text(part.columns) + "</caption>\n" + rows +
           "</table></div>\n";
  }

  std::string operator()(const PagePictures& part) {
    std::string figures;
    for (const PagePicture& picture : part.pictures) {
      has_pictures_ = true;
      const double ratio = std::clamp(picture.aspect_ratio, kNarrowest, kWidest);
      figures += "<figure class=\"picture\">" + tag("figcaption", markup_text(picture.title)) +
                 "<img alt=\"" + markup_text(picture.alt) +
                 "\" style=\"aspect-ratio:" + fixed_text(ratio, 3) + "\" src=\"data:image/png;base64," +
                 base64_text(picture.png) + "\">";
      if (!picture.low.empty() || !picture.high.empty())
        figures += "<div class=\"scale\">" + tag("span", markup_text(picture.low)) +
                   tag("i", "", "style=\"background:" + heat_map_gradient() + "\"") +
                   tag("span", markup_text(picture.high)) + "</div>";
      figures += "</figure>\n";
    }
    return (part.are_small ? "<div class=\"charts small\">\n" : "<div class=\"charts\">\n") + figures +
           "</div>\n";
  }

  std::string operator()(const PageBars& part) const {
    std::string rows;
    for (const auto& [name, fraction] : part.bars) {
      const std::string percent = fixed_text(100 * std::clamp(fraction, 0.0, 1.0), 1);
      rows += tag("tr", tag("td", markup_text(name)) + tag("td", percent + " %") +
                            tag("td", "<span style=\"width:" + percent + "%\"></span>", "class=\"bar\"")) +
              "\n";
    }
    return "<table class=\"bars\">\n" + rows + "</table>\n";
  }

  std::string operator()(const PageNote& part) const {
    return tag("p", markup_text(part.text), "class=\"note\"") + "\n";
  }

  std::string operator()(const PageText& part) const {
    const std::string text = tag("pre", markup_lines(part.text), "tabindex=\"0\"") + "\n";
    if (part.summary.empty()) return text;
    return tag("details", tag("summary", markup_text(part.summary)) + text) + "\n";
  }

  const std::string& script_data() const { return script_data_; }
  bool has_pictures() const { return has_pictures_; }

 private:
  // Beyond them, a picture is stretched: a strip of a few rows would be a line.
  static constexpr double kNarrowest = 0.6, kWidest = 12;

  static std::string matrix_cells(const std::vector<double>& cells) {
    double sum = 0;
    for (const double cell : cells) sum += std::isfinite(cell) ? std::abs(cell) : 0;
    std::string text;
    for (const double cell : cells) {
      const double fraction = sum > 0 && std::isfinite(cell) ? std::abs(cell) / sum : 0;
      constexpr double kDark = 0.55;  // from here on, light digits are easier to read
      text += tag(
          "td",
          cell == 0 ? "·" : (cell == std::trunc(cell) ? number_text(cell) : short_text(cell, kDrawnDigits)),
          "style=\"--f:" + fixed_text(fraction, 3) + "\"" +
              (fraction > kDark ? " class=\"full\""
               : cell == 0      ? " class=\"none\""
                                : ""));
    }
    return text;
  }

  std::size_t num_charts_ = 0;
  std::string script_data_;
  bool has_pictures_ = false;
};

std::string head_of(const HtmlPage& page, bool has_pictures) {
  std::string head = "<meta charset=\"utf-8\">\n";
  if (page.refresh_s > 0)  // without JavaScript, which reloads only what is still replaced
    head += "<noscript><meta http-equiv=\"refresh\" content=\"" + std::to_string(page.refresh_s) +
            "\"></noscript>\n";
  // The page may show names that others have chosen: the browser is to load nothing for them.
  head +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'" +
      std::string(has_pictures ? "; img-src data:" : "") +
      "\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  head += tag("title", markup_text(page.title)) + "\n<style>\n";
  return head.append(kPageStyle).append("</style>\n");
}

std::string header_of(const HtmlPage& page) {
  constexpr const char* kTones[] = {"class=\"status\"", "class=\"status good\"", "class=\"status bad\""};
  std::string title = tag("h1", markup_text(page.title));
  if (!page.status.empty())
    title += tag("span", markup_text(page.status), kTones[static_cast<std::size_t>(page.tone)]);
  const std::string refresh = page.refresh_s == 0
                                  ? ""
                                  : "data-refresh=\"" + std::to_string(page.refresh_s) +
                                        "\" data-written=\"" + fixed_text(page.written_s, 0) +
                                        "\" data-max-age=\"" + fixed_text(page.max_age_s, 0) + "\"";
  return tag("header",
             "<div class=\"title\">" + title + "</div>\n" +
                 (page.subtitle.empty() ? "" : tag("p", markup_text(page.subtitle)) + "\n"),
             refresh) +
         "\n";
}

}  // namespace

std::string to_html(const HtmlPage& page) {
  PartWriter writer;
  std::string body = header_of(page) + "<main>\n";
  for (const PageSection& section : page.sections) {
    body += "<section>\n" + (section.title.empty() ? "" : tag("h2", markup_text(section.title)) + "\n");
    for (const PagePart& part : section.parts) body += std::visit(writer, part);
    body += "</section>\n";
  }
  body += "</main>\n";
  if (!page.footer.empty()) body += tag("footer", markup_text(page.footer)) + "\n";
  // The script takes the name space of drawings from this one.
  body += "<svg id=\"model\" width=\"0\" height=\"0\" aria-hidden=\"true\"></svg>\n";
  body += tag("script", "[" + writer.script_data() + "]", "id=\"data\" type=\"application/json\"") + "\n";
  body += tag("script", "\n" + std::string(kPageScript)) + "\n";
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n" + head_of(page, writer.has_pictures()) +
         "</head>\n<body>\n" + body + "</body>\n</html>\n";
}

}  // namespace kindling
