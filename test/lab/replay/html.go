package replay

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
)

//go:embed report.html.tmpl
var pageText string

var page = template.Must(template.New("report").Parse(pageText))

// armPage is the section of an arm.
type armPage struct {
	ArmResult
	Ready, Spot, Outages template.HTML
	ServiceHeader        []string
	ServiceRows          [][]string
}

// HTML returns report.html, which needs no other file and no network.
func (r *Report) HTML() ([]byte, error) {
	header, rows := r.table()
	gapHeader, gapRows := r.gapTable()
	data := struct {
		*Report
		Header       []string
		Rows         [][]string
		GapHeader    []string
		GapRows      [][]string
		GapTexts     []string
		Findings     []string
		Warnings     []string
		Explanations []string
		Facts        []string
		Plane        template.HTML
		ArmPages     []armPage
	}{Report: r, Header: header, Rows: rows, GapHeader: gapHeader, GapRows: gapRows, GapTexts: gapExplanations, Findings: r.findings(),
		Warnings: r.warnings(), Explanations: explanations, Facts: r.facts()}
	plane, err := r.planePlot()
	if err != nil {
		return nil, fmt.Errorf("drawing the costs: %w", err)
	}
	data.Plane = template.HTML(plane)
	for _, a := range r.Arms {
		section := armPage{ArmResult: a}
		section.ServiceHeader, section.ServiceRows = a.serviceTable()
		for _, plot := range []struct {
			to   *template.HTML
			draw func(ArmResult) (string, error)
		}{{&section.Ready, r.readyPlot}, {&section.Spot, r.spotPlot}, {&section.Outages, r.outagePlot}} {
			text, err := plot.draw(a)
			if err != nil {
				return nil, fmt.Errorf("drawing arm %s: %w", a.Name, err)
			}
			*plot.to = template.HTML(text)
		}
		data.ArmPages = append(data.ArmPages, section)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
