package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is the content of the SVG.
type picture struct {
	title   string
	note    string // below the title
	length  time.Duration
	numbers []chart // each shows its last value
	curves  []chart
	marks   []mark
}

// chart is a panel with the results of its queries.
type chart struct {
	title   string
	unit    string // Grafana's name of the unit
	stacked bool
	series  []series
}

// series has a value for every step of the story; NaN if there is none.
type series struct {
	legend string
	values []float64
}

// Lengths are in points, as in the SVG.
const (
	width   = 1000
	margin  = 16
	columns = 2
	numberH = 62
	curveH  = 250
	lineH   = 17
)

// svg draws the picture.
func (p picture) svg() ([]byte, error) {
	rows := (len(p.curves) + columns - 1) / columns
	header := vg.Length(58 + lineH*len(p.marks))
	height := header + numberH + margin + vg.Length(rows)*(curveH+margin)
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	fill(all, paint(background, 1))

	top := height - margin
	write(all, margin, top-16, 18, bold, ink, p.title)
	write(all, margin, top-33, 11, plain, faint, p.note)
	for i, m := range p.marks {
		y := top - 33 - vg.Length(i+1)*lineH
		write(all, margin+4, y, 12, bold, ink, strconv.Itoa(i+1))
		write(all, margin+20, y, 12, plain, faint, clock(m.at))
		write(all, margin+54, y, 12, plain, ink, m.text)
	}
	tile := func(i, of int, y, h vg.Length) draw.Canvas {
		w := (vg.Length(width) - margin*vg.Length(of+1)) / vg.Length(of)
		x := margin + vg.Length(i%of)*(w+margin)
		c := draw.Crop(all, x, x+w-width, y, y+h-height)
		fill(c, color.White)
		return c
	}
	for i, n := range p.numbers {
		n.number(tile(i, len(p.numbers), height-header-numberH, numberH))
	}
	for i, c := range p.curves {
		y := height - header - numberH - vg.Length(i/columns+1)*(curveH+margin)
		if err := c.curve(tile(i, columns, y, curveH), p.length, p.marks); err != nil {
			return nil, fmt.Errorf("%s: %w", c.title, err)
		}
	}
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return nil, err
	}
	// The text was measured with Liberation Sans, which has the widths of Arial.
	const measured, drawn = "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
	return bytes.ReplaceAll(out.Bytes(), []byte(measured), []byte(drawn)), nil
}

// number draws a panel that shows one number, the last value.
func (c chart) number(on draw.Canvas) {
	write(on, on.Min.X+10, on.Max.Y-20, 11, bold, ink, c.title)
	text := "no value"
	for _, v := range slices.Backward(c.series[0].values) {
		if !math.IsNaN(v) {
			text = formatValue(v, c.unit)
			break
		}
	}
	write(on, on.Min.X+10, on.Min.Y+12, 22, bold, good, text)
}

// curve draws a panel that shows values over time.
func (c chart) curve(on draw.Canvas, length time.Duration, marks []mark) error {
	write(on, on.Min.X+10, on.Max.Y-20, 13, bold, ink, c.title)
	lines := c.shown()
	legendTop := legend(on, lines)

	p := plot.New()
	p.BackgroundColor = color.Transparent
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0, 0
		axis.Tick.Label.Font, axis.Tick.Label.Color = sans(10, plain), paint(faint, 1)
		axis.Padding = 6
	}
	p.X.Tick.Marker = plot.TickerFunc(func(_, most float64) (ticks []plot.Tick) {
		for at := 0.0; at <= most; at += 30 {
			ticks = append(ticks, plot.Tick{Value: at, Label: clock(time.Duration(at * float64(time.Second)))})
		}
		return ticks
	})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, length.Seconds(), 0, c.most(lines)
	p.Y.Tick.Marker = plot.TickerFunc(func(_, most float64) []plot.Tick { return ticks(most, c.unit) })
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Width = paint(gridline, 1), 0
	p.Add(grid)

	below := make([]float64, len(c.series[0].values))
	for _, line := range lines {
		upper, lower := plotter.XYs{}, plotter.XYs{}
		for step, v := range line.values {
			at := float64(step) * every.Seconds()
			if !c.stacked {
				if !math.IsNaN(v) {
					upper = append(upper, plotter.XY{X: at, Y: v})
				}
				continue
			}
			lower = append(lower, plotter.XY{X: at, Y: below[step]})
			if !math.IsNaN(v) {
				below[step] += v
			}
			upper = append(upper, plotter.XY{X: at, Y: below[step]})
		}
		if c.stacked {
			slices.Reverse(lower)
			area, err := plotter.NewPolygon(append(slices.Clone(upper), lower...))
			if err != nil {
				return err
			}
			area.Color, area.LineStyle.Width = paint(line.color, fillOpacity), 0
			p.Add(area)
			continue
		}
		curve, err := plotter.NewLine(upper)
		if err != nil {
			return err
		}
		curve.Color, curve.Width = paint(line.color, 1), 2
		p.Add(curve)
	}
	inner := draw.Crop(on, 8, -14, legendTop-on.Min.Y+4, -44)
	p.Draw(inner)
	data := p.DataCanvas(inner)
	for i, m := range marks {
		x := data.X(p.X.Norm(m.at.Seconds()))
		data.StrokeLine2(draw.LineStyle{Color: paint(faint, 1), Width: 1, Dashes: []vg.Length{3, 3}}, x, data.Min.Y, x, data.Max.Y)
		number := strconv.Itoa(i + 1)
		write(on, x-face(10, bold).Width(number)/2, data.Max.Y+5, 10, bold, ink, number)
	}
	return nil
}

// line is a series with its color.
type line struct {
	series
	color uint32
}

// shown returns the drawn series: all, or in a stacked chart only series that are not always 0.
func (c chart) shown() []line {
	var lines []line
	for _, s := range c.series {
		shade, ok := colors[s.legend]
		if !ok {
			shade = palette[len(lines)%len(palette)]
		}
		if !c.stacked || slices.ContainsFunc(s.values, func(v float64) bool { return v != 0 && !math.IsNaN(v) }) {
			lines = append(lines, line{s, shade})
		}
	}
	return lines
}

// most returns the upper end of the axis: slightly above all values, and at least 4.
func (c chart) most(lines []line) float64 {
	most := 0.0
	for step := range c.series[0].values {
		sum := 0.0
		for _, l := range lines {
			if v := l.values[step]; !math.IsNaN(v) && c.stacked {
				sum += v
			} else if !math.IsNaN(v) {
				sum = max(sum, v)
			}
		}
		most = max(most, sum)
	}
	return max(4, most*1.08)
}

// legend writes the legend at the bottom of a panel, in as many rows as necessary, and returns its
// upper edge.
func legend(on draw.Canvas, lines []line) (top vg.Length) {
	const swatch, gap = 10, 16
	rows := [][]line{nil}
	used := vg.Length(0)
	for _, l := range lines {
		w := swatch + 5 + widthOf(l.legend) + gap
		if last := len(rows) - 1; used+w > on.Max.X-on.Min.X-20 && len(rows[last]) > 0 {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], l)
		used += w
	}
	for i, row := range rows {
		x, y := on.Min.X+12, on.Min.Y+10+vg.Length(len(rows)-1-i)*lineH
		for _, l := range row {
			square := vg.Rectangle{Min: vg.Point{X: x, Y: y - 1}, Max: vg.Point{X: x + swatch, Y: y + swatch - 1}}
			fill(draw.Canvas{Canvas: on.Canvas, Rectangle: square}, paint(l.color, fillOpacity))
			write(on, x+swatch+5, y, 11, plain, ink, l.legend)
			x += swatch + 5 + widthOf(l.legend) + gap
		}
	}
	return on.Min.Y + 10 + vg.Length(len(rows))*lineH
}

// widthOf returns the largest width of a text in a legend. A viewer without Liberation Sans and
// Arial uses a wider font.
func widthOf(text string) vg.Length { return 1.15 * face(11, plain).Width(text) }

// ticks returns about four round values from 0 to most.
func ticks(most float64, unit string) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if most/(step*factor) <= 5 {
			step *= factor
			break
		}
	}
	for v := 0.0; v <= most; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: formatValue(v, unit)})
	}
	return ticks
}

// formatValue formats a value in a Grafana unit.
func formatValue(v float64, unit string) string {
	short := strconv.FormatFloat(v, 'g', 3, 64)
	switch unit {
	case "percentunit":
		return strconv.FormatFloat(100*v, 'g', 3, 64) + " %"
	case "s":
		return short + " s"
	case "cpm":
		return short + "/min"
	default:
		return short
	}
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}
