package main

// dashboard is rows of panels.
type dashboard struct {
	uid, title string
	program    string // whose instances may be chosen; empty: no choice
	rows       []row
}

type row struct {
	title  string
	panels []panel
}

// panel is a graph, or a number if it is a stat.
type panel struct {
	title, tells string
	unit         string // of Grafana: "pps", "Bps", "s", "short", "percentunit"
	stat         bool
	queries      []query
}

type query struct{ expr, legend string }

// object is JSON.
type object = map[string]any

// Sizes on Grafana's grid of 24 columns.
const (
	columns     = 24
	graphWidth  = 8
	graphHeight = 8
	statWidth   = 4
	statHeight  = 4
)

// model is the dashboard as Grafana reads it.
func (d dashboard) model() object {
	var panels []object
	y, id := 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, object{
			"id": id, "type": "row", "title": r.title, "collapsed": false,
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1}, "panels": []object{},
		})
		y++
		x, tallest := 0, 0
		for _, p := range r.panels {
			id++
			w, h := p.size()
			if x+w > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			panels = append(panels, p.model(id, x, y))
			x, tallest = x+w, max(tallest, h)
		}
		y += tallest
	}
	return object{
		"uid": d.uid, "title": d.title, "tags": []string{"weir"}, "schemaVersion": 39, "version": 1,
		"timezone": "browser", "refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"graphTooltip": 1, "editable": true, "templating": object{"list": d.variables()}, "panels": panels,
		"links": []object{{"type": "dashboards", "tags": []string{"weir"}, "title": "Weir", "asDropdown": true}},
	}
}

// variables are the choices at the head: where the metrics are, and which instances.
func (d dashboard) variables() []object {
	all := []object{{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}}
	if d.program == "" {
		return all
	}
	expr := `label_values(weir_build_info{program="` + d.program + `"}, instance)`
	return append(all, object{
		"name": "instance", "label": "Instance", "type": "query", "datasource": source,
		"query": object{"query": expr, "refId": "instance"}, "definition": expr,
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
		"current": object{"text": "All", "value": "$__all"},
	})
}

var source = object{"type": "prometheus", "uid": "${datasource}"}

func (p panel) size() (width, height int) {
	if p.stat {
		return statWidth, statHeight
	}
	return graphWidth, graphHeight
}

func (p panel) model(id, x, y int) object {
	w, h := p.size()
	targets := make([]object, 0, len(p.queries))
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "datasource": source, "instant": p.stat, "range": !p.stat,
		})
	}
	kind, options := "timeseries", object{
		"legend":  object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
	if p.stat {
		kind, options = "stat", object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
	}
	return object{
		"id": id, "type": kind, "title": p.title, "description": p.tells, "datasource": source,
		"gridPos": object{"x": x, "y": y, "w": w, "h": h}, "targets": targets, "options": options,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}},
	}
}
