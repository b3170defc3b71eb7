package decision

// Distribution counts the pods of one revision by where they run. The zero value contains no pods.
type Distribution struct {
	// Placed counts them by capacity type.
	Placed PlacedPods
	inZone map[string]int
	inPool map[SpreadPool]int
}

// Add counts n more pods on a node.
func (d *Distribution) Add(node Node, n int) {
	if d.inZone == nil {
		d.inZone, d.inPool = map[string]int{}, map[SpreadPool]int{}
	}
	d.Placed.Add(node.Capacity.Type, n)
	d.inZone[node.Zone] += n
	if node.Capacity.Type == Spot { // on-demand nodes are not reclaimed with their pool
		d.inPool[node.SpreadPool()] += n
	}
}

// InPool returns the number of pods in the spot pool of a node; 0 for an on-demand node.
func (d *Distribution) InPool(node Node) int { return d.inPool[node.SpreadPool()] }

// Around returns the siblings around a node that runs onNode of the pods.
func (d *Distribution) Around(node Node, onNode int) Siblings {
	return Siblings{OnNode: onNode, InZone: d.inZone[node.Zone], InPool: d.InPool(node)}
}
