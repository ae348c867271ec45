// Draws the charts of the page at the width of the window, with zoom and with values under the pointer.
(function () {
  "use strict";
  reload();
  const charts = JSON.parse(document.getElementById("data").textContent);
  const space = document.getElementById("model").namespaceURI;
  const HEIGHT = 270, TOP = 8, RIGHT = 14, BOTTOM = 44, CHARACTER = 7.2, COLORS = 6, MOST_MARKERS = 40, DENSE = 600;
  const DASHES = ["", "7 4", "2 3", "7 3 2 3"];
  const zooms = read();  // by the label of the x axis: charts with the same axis zoom together

  // Reloads the page of an active run, until its file has not been replaced for so long that the run must be dead.
  function reload() {
    const header = document.querySelector("header"), refresh = Number(header.dataset.refresh);
    if (!(refresh > 0)) return;
    const written = Number(header.dataset.written);
    if (Date.now() / 1000 - written <= Number(header.dataset.maxAge)) {
      setTimeout(function () { location.reload(); }, 1000 * refresh);
      return;
    }
    const note = document.createElement("p");
    note.className = "stale";
    note.textContent = "No update since " + new Date(1000 * written).toLocaleString() +
      ": the run may have been killed. Reload the page to look again.";
    header.appendChild(note);
  }
  function read() {
    try { return JSON.parse(sessionStorage.getItem("zoom " + location.pathname)) || {}; } catch (ignored) { return {}; }
  }
  function store() {
    try { sessionStorage.setItem("zoom " + location.pathname, JSON.stringify(zooms)); } catch (ignored) { /* no storage */ }
  }
  function svg(name, attributes, parent) {
    const element = document.createElementNS(space, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(element);
    return element;
  }
  function html(name, className, parent, text) {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }
  function color(i) { return "var(--c" + (i % COLORS) + ")"; }
  function dash(i) { return DASHES[Math.floor(i / COLORS) % DASHES.length]; }

  function roundStep(step) {
    const power = Math.pow(10, Math.floor(Math.log10(step)));
    for (const factor of [1, 2, 5]) if (step <= factor * power * 1.000001) return factor * power;
    return 10 * power;
  }
  function linearTicks(low, high, wanted, smallest) {
    const step = Math.max(roundStep((high - low) / wanted), smallest || 0), ticks = [];
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const largest = Math.max(Math.abs(low), Math.abs(high));
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && ticks.length < 50; ++k) {
      const value = k * step + 0;
      const plain = decimals <= 6 && largest < 1e7;
      ticks.push([value, plain ? value.toFixed(decimals) : Number(value.toPrecision(6)).toExponential().replace("e+", "e")]);
    }
    return ticks;
  }
  function logTicks(low, high, wanted) {  // both are exponents of 10
    if (high - low < 1) return linearTicks(Math.pow(10, low), Math.pow(10, high), wanted)
      .filter(function (tick) { return tick[0] > 0; }).map(function (tick) { return [Math.log10(tick[0]), tick[1]]; });
    const ticks = [], stride = Math.max(1, Math.ceil((high - low) / wanted));
    for (let power = Math.ceil(low / stride) * stride; power <= high; power += stride)
      ticks.push([power, Number(("1e" + power)).toPrecision(1).replace("e+", "e")]);
    return ticks;
  }
  function valueText(value) { return value === null ? "not finite" : String(Number(value.toPrecision(5))); }
  function placeText(value) { return Number.isInteger(value) ? value.toLocaleString("en-US") : valueText(value); }

  // Returns the index of the first x that is at least `value`.
  function lowerBound(x, value) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }
  function nearest(x, value) {
    const at = lowerBound(x, value);
    if (at === 0) return 0;
    return at === x.length || value - x[at - 1] < x[at] - value ? at - 1 : at;
  }
  function widened(low, high, margin) {
    if (!(low <= high)) return [0, 1];
    if (high - low <= Math.max(Math.abs(low), Math.abs(high)) * 1e-9) {
      const half = Math.abs(low) * 0.1 || 0.5;
      return [low - half, high + half];
    }
    return [low - margin * (high - low), high + margin * (high - low)];
  }

  function Plot(figure, chart) {
    const hidden = chart.curves.map(function () { return false; });
    let isLog = chart.log, frame = null;
    const caption = figure.querySelector("figcaption");
    caption.textContent = "";
    html("span", "", caption, chart.title);
    const reset = html("button", "", caption, "reset zoom");
    const scale = html("button", "", caption, "log");
    scale.title = "logarithmic y axis";
    const plot = html("div", "plot", figure);
    const tip = html("div", "tip", plot);
    tip.hidden = true;
    legend();
    reset.onclick = function () { zoomTo(null); };
    scale.onclick = function () { isLog = !isLog; draw(); };
    scale.hidden = !chart.curves.some(function (curve) { return curve.y.some(function (y) { return y > 0; }); });

    function legend() {
      const list = html("div", "legend", figure);
      chart.curves.forEach(function (curve, i) {
        const button = html("button", "", list);
        const sample = svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, button);
        svg("path", { d: curve.points ? "M9 4h4" : "M0 4H22", "class": "curve" + (curve.thin ? " thin" : ""), style: "stroke:" + color(i),
                      "stroke-dasharray": dash(i) }, sample);
        html("span", "", button, curve.label);
        button.title = "show or hide";
        button.onclick = function () {
          hidden[i] = !hidden[i];
          button.classList.toggle("off", hidden[i]);
          draw();
        };
      });
      if (chart.curves.some(function (curve) { return curve.y.some(function (y) { return y === null; }); }))
        html("span", "note", list, "× not finite").style.margin = "0 4px";
    }

    function shown() { return chart.curves.filter(function (_, i) { return !hidden[i]; }); }
    function onScale(y) { return y === null ? null : isLog ? (y > 0 ? Math.log10(y) : null) : y; }
    function xLimits() {
      let low = Infinity, high = -Infinity;
      chart.curves.forEach(function (curve) {
        if (curve.x.length === 0) return;
        low = Math.min(low, curve.x[0]);
        high = Math.max(high, curve.x[curve.x.length - 1]);
      });
      return widened(low, high, 0.02);
    }
    // The extremes of the values within the x limits, with the neighbours that lines lead to.
    function yLimits(from, to) {
      let low = Infinity, high = -Infinity;
      shown().forEach(function (curve) {
        const end = Math.min(lowerBound(curve.x, to) + 1, curve.x.length);
        for (let i = Math.max(lowerBound(curve.x, from) - 1, 0); i < end; ++i) {
          const y = onScale(curve.y[i]);
          if (y === null) continue;
          low = Math.min(low, y);
          high = Math.max(high, y);
        }
      });
      return widened(low, high, 0.06);
    }

    function draw() {
      const width = Math.max(plot.clientWidth, 200);
      const full = xLimits(), zoom = zooms[chart.xlabel];
      const isZoomed = zoom && zoom[1] > full[0] && zoom[0] < full[1];
      const x = isZoomed ? zoom : full, y = yLimits(x[0], x[1]);
      const yTicks = (isLog ? logTicks : linearTicks)(y[0], y[1], 7);
      const left = 10 + CHARACTER * Math.max.apply(null, yTicks.map(function (tick) { return tick[1].length; }).concat(2));
      const xTicks = linearTicks(x[0], x[1], Math.max(2, Math.floor((width - left) / 64)), chart.whole ? 1 : 0);
      frame = { left: left, right: width - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM, x: x, y: y };
      reset.hidden = !isZoomed;
      scale.setAttribute("aria-pressed", String(isLog));
      const old = plot.querySelector("svg");
      const root = svg("svg", { viewBox: "0 0 " + width + " " + HEIGHT, role: "img", "aria-label": chart.title });
      axes(root, xTicks, yTicks);
      curves(root);
      frame.cross = svg("path", { "class": "cross", d: "" }, root);
      frame.range = svg("path", { "class": "range", d: "" }, root);
      if (old) plot.replaceChild(root, old); else plot.insertBefore(root, tip);
      tip.hidden = true;
    }
    function px(x) { return frame.left + (x - frame.x[0]) / (frame.x[1] - frame.x[0]) * (frame.right - frame.left); }
    function py(y) {
      const at = (y - frame.y[0]) / (frame.y[1] - frame.y[0]);
      return frame.bottom - Math.max(-50, Math.min(50, at)) * (frame.bottom - frame.top);
    }
    function xAt(pixel) {
      const at = (pixel - frame.left) / (frame.right - frame.left);
      return frame.x[0] + Math.max(0, Math.min(1, at)) * (frame.x[1] - frame.x[0]);
    }
    function axes(root, xTicks, yTicks) {
      let grid = "";
      yTicks.forEach(function (tick) {
        const at = py(tick[0]).toFixed(1);
        grid += "M" + frame.left + " " + at + "H" + frame.right;
        svg("text", { x: frame.left - 6, y: Number(at) + 4, "text-anchor": "end" }, root).textContent = tick[1];
      });
      xTicks.forEach(function (tick) {
        const at = px(tick[0]).toFixed(1);
        grid += "M" + at + " " + frame.top + "V" + (frame.bottom + 4);
        const half = tick[1].length * CHARACTER / 2;
        const middle = Math.min(Number(at), frame.right + RIGHT - half);
        svg("text", { x: middle, y: frame.bottom + 18, "text-anchor": "middle" }, root).textContent = tick[1];
      });
      svg("path", { "class": "grid", d: grid }, root);
      svg("path", { "class": "axis", d: "M" + frame.left + " " + frame.top + "V" + frame.bottom + "H" + frame.right }, root);
      svg("text", { x: (frame.left + frame.right) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, root).textContent = chart.xlabel;
    }
    function curves(root) {
      const id = "clip" + figure.dataset.chart;
      svg("rect", { x: frame.left - 1, y: frame.top - 2, width: frame.right - frame.left + 4, height: frame.bottom - frame.top + 3 },
          svg("clipPath", { id: id }, root));
      const group = svg("g", { "clip-path": "url(#" + id + ")" }, root);
      [true, false].forEach(function (thin) {
        chart.curves.forEach(function (curve, i) {
          if (Boolean(curve.thin) === thin && !hidden[i]) curveOf(group, curve, i);
        });
      });
    }
    function curveOf(group, curve, i) {
      const begin = Math.max(lowerBound(curve.x, frame.x[0]) - 1, 0);
      const end = Math.min(lowerBound(curve.x, frame.x[1]) + 2, curve.x.length);
      let path = "", dots = "", gaps = "", lastGap = -9, length = 0;
      for (let k = begin; k < end; ++k) {
        const y = onScale(curve.y[k]), at = px(curve.x[k]);
        if (y === null) {
          length = 0;
          if (curve.y[k] !== null || at - lastGap < 4) continue;
          lastGap = at;
          gaps += "M" + (at - 3).toFixed(1) + " " + (frame.bottom - 10) + "l6 6m0 -6l-6 6";
          continue;
        }
        const place = at.toFixed(1) + " " + py(y).toFixed(1);
        if (curve.points) {
          dots += "M" + place + "h0";
          continue;
        }
        path += (length++ === 0 ? "M" : "L") + place;
        const isAlone = length === 1 && (k + 1 === curve.x.length || onScale(curve.y[k + 1]) === null);
        if (isAlone || end - begin <= MOST_MARKERS) dots += "M" + place + "h0";
      }
      const style = "stroke:" + color(i) + (end - begin > DENSE && !curve.thin ? ";stroke-width:1.2" : "");
      svg("path", { "class": "curve" + (curve.thin ? " thin" : ""), d: path, style: style, "stroke-dasharray": dash(i) }, group);
      if (dots) svg("path", { d: dots, style: style, "stroke-width": curve.thin || curve.points ? 3 : 5, "stroke-linecap": "round" }, group);
      if (gaps) svg("path", { "class": "gap", d: gaps, style: style }, group);
    }

    function zoomTo(range) {
      if (range) zooms[chart.xlabel] = range; else delete zooms[chart.xlabel];
      store();
      plots.forEach(function (other) { if (other.xlabel === chart.xlabel) other.draw(); });
    }
    function pointer(event) { return event.clientX - plot.getBoundingClientRect().left; }
    function hover(event) {
      const at = pointer(event), wanted = xAt(at);
      let place = null;
      chart.curves.forEach(function (curve, i) {
        if (hidden[i] || curve.x.length === 0) return;
        const x = curve.x[nearest(curve.x, wanted)];
        if (place === null || Math.abs(x - wanted) < Math.abs(place - wanted)) place = x;
      });
      if (place === null) return;
      const cross = px(place);
      frame.cross.setAttribute("d", "M" + cross.toFixed(1) + " " + frame.top + "V" + frame.bottom);
      tip.textContent = "";
      html("b", "", tip, chart.xlabel + " " + placeText(place));
      chart.curves.forEach(function (curve, i) {
        if (hidden[i] || curve.x.length === 0) return;
        const k = nearest(curve.x, place);
        const row = html("div", "", tip);
        const name = html("i", "", row, curve.label + (curve.x[k] === place ? "" : " @ " + placeText(curve.x[k])));
        name.style.color = color(i);
        html("b", "", row, valueText(curve.y[k]));
      });
      tip.hidden = false;
      const isRight = cross > (frame.left + frame.right) / 2;
      tip.style.top = frame.top + 2 + "px";
      tip.style.left = isRight ? "" : Math.min(cross + 10, plot.clientWidth - tip.offsetWidth) + "px";
      if (isRight) tip.style.left = Math.max(0, cross - 10 - tip.offsetWidth) + "px";
    }
    let start = null;
    plot.onpointerdown = function (event) {
      if (event.pointerType === "mouse" && event.button === 0) {
        start = pointer(event);
        plot.setPointerCapture(event.pointerId);
      }
    };
    plot.onpointermove = function (event) {
      hover(event);
      if (start === null) return;
      const from = Math.max(frame.left, Math.min(start, pointer(event)));
      const to = Math.min(frame.right, Math.max(start, pointer(event)));
      frame.range.setAttribute("d", "M" + from + " " + frame.top + "H" + to + "V" + frame.bottom + "H" + from + "Z");
    };
    plot.onpointerup = function (event) {
      if (start === null) return;
      const from = start, to = pointer(event);
      start = null;
      frame.range.setAttribute("d", "");
      if (Math.abs(to - from) > 6) zoomTo([xAt(Math.min(from, to)), xAt(Math.max(from, to))]);
    };
    plot.onpointercancel = function () { start = null; };
    plot.onpointerleave = function () {
      tip.hidden = true;
      if (frame) frame.cross.setAttribute("d", "");
    };
    plot.ondblclick = function () { zoomTo(null); };
    return { xlabel: chart.xlabel, draw: draw };
  }

  const plots = Array.from(document.querySelectorAll("figure.chart")).map(function (figure) {
    return Plot(figure, charts[Number(figure.dataset.chart)]);
  });
  function drawAll() { plots.forEach(function (plot) { plot.draw(); }); }
  drawAll();
  let width = window.innerWidth;
  window.addEventListener("resize", function () {
    if (window.innerWidth !== width) drawAll();
    width = window.innerWidth;
  });
  window.addEventListener("beforeprint", drawAll);
})();
