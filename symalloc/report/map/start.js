// The data stands in the page; what kind it is says who shows it.
const data = JSON.parse(at("data").textContent);
const PAGES = { plan: planPage, trace: tracePage };
PAGES[data.kind](data);
