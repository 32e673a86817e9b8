"""Methods: how an episode is solved, one file each."""

METHODS = {
    "standard": "runner.methods.standard:Standard",
    "cot": "runner.methods.cot:Cot",
    "cot_sc": "runner.methods.cot_sc:CotSC",
    "act": "runner.methods.act:Act",
    "react": "runner.methods.react:React",
    "react_im": "runner.methods.react_im:ReactIM",
    "react_then_cot_sc": "runner.methods.react_then_cot_sc:ReactThenCotSC",
    "cot_sc_then_react": "runner.methods.cot_sc_then_react:CotSCThenReact",
}
"""Every method's word in a job, and where it is. A new method is one file and one line here; other packages
add theirs by an entry point in the group `overnight.methods`."""
