package replay

import (
	"bytes"
	"fmt"
	"image/color"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a plot is that of a phone, so that its text is readable there.
const (
	plotWidth  = 360
	plotHeight = 230
	textSize   = 10.5

	planeHeight = plotHeight + 60 // for the legend with all arms
)

var (
	ink       = color.NRGBA{0x24, 0x29, 0x2e, 0xff}
	faint     = color.NRGBA{0xc4, 0xca, 0xd0, 0xff}
	blue      = color.NRGBA{0x1f, 0x4e, 0x9c, 0xff}
	green     = color.NRGBA{0x57, 0xa5, 0x5a, 0xff}
	lightBlue = color.NRGBA{0x84, 0xb1, 0xed, 0xff}
	red       = color.NRGBA{0xd1, 0x24, 0x2f, 0xff}
)

// newPlot returns an empty plot in the style of the report.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: textSize}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = face, face
		axis.Label.TextStyle.Color, axis.Tick.Label.Color, axis.LineStyle.Color, axis.Tick.LineStyle.Color = ink, ink, faint, faint
	}
	p.Legend.TextStyle.Font, p.Legend.TextStyle.Color = face, ink
	// On the left, text that is wider than measured does not cover the sample of its line.
	p.Legend.Top, p.Legend.Left, p.Legend.ThumbnailWidth, p.Legend.Padding, p.Legend.XOffs = true, true, 14, 2, 4
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Width = faint, 0
	p.Add(grid)
	return p
}

// onDark has the colours of plots on dark pages. Plots have no background. A browser applies the
// theme of the page, or that of the operating system.
var onDark = fmt.Sprintf(`<style>@media (prefers-color-scheme: dark) {
text { fill: %[1]s !important }
[style*="stroke:%[2]s"] { stroke: %[1]s !important }
[style*="stroke:%[3]s"] { stroke: #4B5159 !important }
[style*="stroke:%[4]s"] { stroke: #7AA2F7 !important }
[style*="stroke:%[5]s"] { stroke: #FF7B72 !important }
}</style>
`, "#DFDFD6", hex(ink), hex(faint), hex(blue), hex(red))

// hex returns a colour as in the files of plots.
func hex(c color.NRGBA) string {
	return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B)
}

// svg returns the plot as a file. The library knows the width of Liberation Sans; the other fonts
// are almost as wide.
func svg(p *plot.Plot, height vg.Length) ([]byte, error) {
	p.BackgroundColor = nil
	canvas := vgsvg.New(plotWidth, height)
	// The right margin keeps the last label of the axis inside.
	p.Draw(draw.Crop(draw.New(canvas), 2, -12, 2, -6))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	const family = "font-family:Liberation Sans"
	image := bytes.ReplaceAll(out.Bytes(), []byte(family), []byte(family+",Arial,Helvetica,sans-serif"))
	// In pixels, two plots are beside each other on a page of GitHub.
	image = bytes.ReplaceAll(image, []byte(`pt" `), []byte(`" `))
	return bytes.Replace(image, []byte("<g "), []byte(onDark+"<g "), 1), nil
}

// plotFile is a plot beside a page.
type plotFile struct {
	name, caption string // name is the name of the file without its prefix
	height        vg.Length
	draw          func() (*plot.Plot, error)
}

// plotFiles returns the plots of a report, in rows: all arms together, and these arms over time.
func (r *Report) plotFiles(arms []ArmResult) [][]plotFile {
	pods := plane{"pods", r.Bound.AllOnDemandPodHoursCost, r.Bound.PodHoursCost,
		func(a ArmResult) float64 { return a.PodHoursCost }}
	caption := r.planeCaption("Cost by pods (what they request) and availability, with the bound (dashed)")
	planes := []plotFile{{"plane.svg", caption, planeHeight, func() (*plot.Plot, error) { return r.planePlot(pods) }}}
	if a := r.Arm("on-demand"); a != nil && !a.Partial {
		nodes := plane{"nodes", a.NodeHoursCost, 0, func(a ArmResult) float64 { return a.NodeHoursCost }}
		caption := r.planeCaption("Cost by nodes (idle ones too) and availability")
		planes = append(planes, plotFile{"plane-nodes.svg", caption, planeHeight, func() (*plot.Plot, error) { return r.planePlot(nodes) }})
	}
	rows := [][]plotFile{planes}
	for _, a := range arms {
		rows = append(rows, []plotFile{
			{a.Name + "-ready.svg", "Ready and desired replicas, " + a.Name, plotHeight,
				func() (*plot.Plot, error) { return r.readyPlot(a) }},
			{a.Name + "-spot.svg", "Spot nodes and their use, " + a.Name, plotHeight,
				func() (*plot.Plot, error) { return r.spotPlot(a) }}})
	}
	return rows
}

// writePlots writes plots to a folder, and returns the Markdown that shows them, a paragraph for
// each row.
func writePlots(folder, prefix string, rows [][]plotFile) (string, error) {
	var b strings.Builder
	for _, row := range rows {
		for _, file := range row {
			p, err := file.draw()
			if err != nil {
				return "", fmt.Errorf("drawing %s: %w", file.name, err)
			}
			image, err := svg(p, file.height)
			if err != nil {
				return "", fmt.Errorf("drawing %s: %w", file.name, err)
			}
			if err := replaceFile(filepath.Join(folder, prefix+file.name), image); err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "![%s](%s)\n", file.caption, prefix+file.name)
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

// hourTicks label the time axis in hours.
type hourTicks struct{}

// Ticks implements plot.Ticker.
func (hourTicks) Ticks(from, to float64) []plot.Tick {
	step := 1.0
	for _, s := range []float64{1, 2, 3, 6, 12, 24, 48, 96, 192} {
		if step = s; (to-from)/s <= 8 {
			break
		}
	}
	var ticks []plot.Tick
	for at := 0.0; at <= to; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%g", at)})
	}
	return ticks
}

// timeline returns an empty plot over the window.
func (r *Report) timeline(y string) *plot.Plot {
	p := newPlot("hours", y)
	p.X.Tick.Marker = hourTicks{}
	p.X.Min, p.X.Max, p.Y.Min = 0, r.WindowLength/3600, 0
	return p
}

// curve adds values over time to a plot. Each value applies until the next point.
func (r *Report) curve(p *plot.Plot, a ArmResult, legend string, shade color.Color, width vg.Length, value func(Point) float64) error {
	var line plotter.XYs
	for i, point := range a.Series {
		end := a.MeasuredSeconds
		if i+1 < len(a.Series) {
			end = a.Series[i+1].Seconds
		}
		v := value(point)
		line = append(line, plotter.XY{X: point.Seconds / 3600, Y: v}, plotter.XY{X: end / 3600, Y: v})
		p.Y.Max = max(p.Y.Max, v*1.25)
	}
	if len(line) == 0 {
		return nil
	}
	l, err := plotter.NewLine(line)
	if err != nil {
		return err
	}
	l.Color, l.Width = shade, width
	p.Add(l)
	p.Legend.Add(legend, l)
	return nil
}

// readyPlot draws ready against desired replicas of an arm.
func (r *Report) readyPlot(a ArmResult) (*plot.Plot, error) {
	p := r.timeline("replicas")
	if err := r.curve(p, a, "desired", lightBlue, 2.5, func(x Point) float64 { return x.Desired }); err != nil {
		return nil, err
	}
	if err := r.curve(p, a, "ready (lowest)", red, 1, func(x Point) float64 { return x.LowestReady }); err != nil {
		return nil, err
	}
	return p, nil
}

// spotPlot draws the spot capacity and what the pods of an arm use of it.
func (r *Report) spotPlot(a ArmResult) (*plot.Plot, error) {
	p := r.timeline("nodes")
	if err := r.curve(p, a, "spot nodes", lightBlue, 2.5, func(x Point) float64 { return x.SpotNodes }); err != nil {
		return nil, err
	}
	if err := r.curve(p, a, "requested by pods", green, 1.2, func(x Point) float64 { return x.SpotUsed }); err != nil {
		return nil, err
	}
	return p, nil
}

// plane is the cost of the arms in one unit.
type plane struct {
	unit     string  // what has the cost
	onDemand float64 // the cost of all on-demand
	bound    float64 // 0 if the unit has none
	cost     func(ArmResult) float64
}

// planeRange returns the upper end of the axis of replicas that are not ready, in percent. If one
// arm has more than four times as much as all others, the axis ends before it: otherwise the other
// points would be on one line. Then planeRange returns that arm too, otherwise nil.
func (r *Report) planeRange() (float64, *ArmResult) {
	var first, second float64
	var last *ArmResult
	for i, a := range r.Arms {
		if a.Partial {
			continue
		}
		if share := notReady(a); share > first {
			first, second, last = share, first, &r.Arms[i]
		} else {
			second = max(second, share)
		}
	}
	if second >= 0.01 && first > 4*second {
		return second * 1.5, last
	}
	return max(first*1.3, 0.01), nil
}

// notReady returns how many of the desired replicas were not ready, in percent.
func notReady(a ArmResult) float64 {
	return 100 * (1 - a.ReadyShare)
}

// planeCaption adds to the caption of a plane which arm is beyond its axis.
func (r *Report) planeCaption(text string) string {
	if _, beyond := r.planeRange(); beyond != nil {
		text += fmt.Sprintf(". Beyond the axis: %s, %.2g %% not ready", beyond.Name, notReady(*beyond))
	}
	return text
}

// planePlot draws cost against availability, with one point per complete arm and a line for the
// bound.
func (r *Report) planePlot(in plane) (*plot.Plot, error) {
	p := newPlot("cost by "+in.unit+", % of all on-demand", "not ready, % of desired")
	top, beyond := r.planeRange()
	p.Y.Min, p.Y.Max, p.X.Min, p.X.Max = 0, top, 0, 105
	of := func(cost float64) float64 { return 100 * ratio(cost, in.onDemand) }
	if in.bound > 0 {
		bound, err := plotter.NewLine(plotter.XYs{{X: of(in.bound), Y: 0}, {X: of(in.bound), Y: top}})
		if err != nil {
			return nil, err
		}
		bound.Color, bound.Dashes = green, []vg.Length{3, 3}
		p.Add(bound)
		p.Legend.Add("bound", bound)
	}
	for _, a := range r.Arms {
		if a.Partial {
			continue
		}
		at := plotter.XY{X: of(in.cost(a)), Y: min(notReady(a), top)}
		p.X.Max = max(p.X.Max, at.X*1.05)
		point, err := plotter.NewScatter(plotter.XYs{at})
		if err != nil {
			return nil, err
		}
		style := armStyles[armIndex(a.Name)]
		point.Color, point.Shape, point.Radius = style.color, style.shape, 4
		p.Add(point)
		p.Legend.Add(a.Name, point)
		if beyond != nil && a.Name == beyond.Name {
			if err := addLabel(p, at, fmt.Sprintf("%.2g %% ↑", notReady(a))); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// addLabel writes a text to the right of a point.
func addLabel(p *plot.Plot, at plotter.XY, text string) error {
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{at}, Labels: []string{text}})
	if err != nil {
		return err
	}
	label.TextStyle[0].Font, label.TextStyle[0].Color = p.Legend.TextStyle.Font, ink
	label.TextStyle[0].YAlign = draw.YCenter
	label.Offset = vg.Point{X: 8}
	p.Add(label)
	return nil
}

// armStyles are the points of the arms, in the order of Arms. Points of different arms with almost
// the same position must be distinguishable, so most are not filled.
var armStyles = []struct {
	color color.Color
	shape draw.GlyphDrawer
}{
	{ink, draw.SquareGlyph{}}, {red, draw.TriangleGlyph{}}, {red, draw.CrossGlyph{}}, {ink, draw.PlusGlyph{}},
	{lightBlue, draw.BoxGlyph{}}, {blue, draw.RingGlyph{}}, {green, draw.PyramidGlyph{}}, {blue, draw.PlusGlyph{}},
	{red, draw.RingGlyph{}},
}
