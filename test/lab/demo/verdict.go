package demo

import (
	"fmt"
	"io"
	"time"
)

// nextCommand is the command after the demo. make demo builds neither kubectl nor kubectl-spot.
const nextCommand = "make tools build && bin/spot-lab up"

// writeVerdict writes one line for each act, and the next command.
func writeVerdict(out io.Writer, color bool, first report, second reclaimed) {
	p := page{out, color}
	style := func(broken error) string {
		if broken != nil {
			return red
		}
		return green
	}
	stock, ours := sum(workloads, first.stock), sum(workloads, first.ours)
	p.line("")
	p.paragraph(style(first.verdict()), fmt.Sprintf("Spot vanished: %d of %d services were down, longest %s. With %s: %d.",
		len(stock.withOutage), len(services()), longest(first.stock), schedulerName, len(ours.withOutage)))
	text := fmt.Sprintf("A pool got notice: all %d pods left within %s. No service was below its floor or budget.",
		len(second.Left), seconds(second.emptyAfter()))
	if broken := second.verdict(); broken != nil {
		text = "A pool got notice: this demo failed. " + broken.Error()
	}
	p.paragraph(style(second.verdict()), text)
	p.line("")
	p.line(" Next: %s", nextCommand)
}

// longest formats the longest outage of a service.
func longest(act map[string]result) string {
	var worst outage
	for _, w := range services() {
		if o := act[w.name].Outage; o.Duration > worst.Duration {
			worst = o
		}
	}
	if worst.Duration == 0 {
		return seconds(0 * time.Second)
	}
	return duration(worst)
}
